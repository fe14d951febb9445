// Past and new rows of a cache, one after the other: [B,K,T,D] in two parts, read through strides -> [B,K,T,D].
#pragma once

#include "flash_call.cuh"
#include "launch.cuh"

namespace ortisan {

struct JoinSizes {
  int64_t heads, past, rows, pieces;  // pieces: of a row, as many as threads copy it
};

// Moves a T for each thread: as much of a row as there are in 16 bytes, or an element.
template <class T>
__global__ void join_rows_kernel(int64_t all, JoinSizes sizes, KeyRows<T> from, T* to) {
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += int64_t(gridDim.x) * blockDim.x) {
    const int64_t piece = at % sizes.pieces, of_row = at / sizes.pieces;
    const int64_t row = of_row % sizes.rows, of_head = of_row / sizes.rows;
    to[at] = from.at(of_head / sizes.heads, of_head % sizes.heads, row, sizes.past)[piece];
  }
}

// numbers: batch, heads, past and new rows, elements of a row; then for both parts: which tensor, where it begins, and its
// strides; then which tensor is written.
template <class T>
void join_rows(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t batch = numbers[0], heads = numbers[1], past = numbers[2], rows = past + numbers[3], size = numbers[4];
  constexpr int64_t step = 16 / sizeof(T);
  KeyRows<T> parts;
  bool wide = size % step == 0;
  numbers += 5;
  for (Rows<const T>* part : {&parts.past, &parts.fresh}) {
    *part = {static_cast<const T*>(tensors[numbers[0]]) + numbers[1], numbers[2], numbers[3], numbers[4]};
    wide = wide && reinterpret_cast<uintptr_t>(part->data) % 16 == 0 && part->batch % step == 0 &&
           part->head % step == 0 && part->row % step == 0;
    numbers += 5;
  }
  const int64_t all = batch * heads * rows * size;
  if (all == 0) return;
  void* const y = tensors[numbers[0]];
  if (wide) {
    KeyRows<uint4> words;
    Rows<const uint4>* to = &words.past;
    for (const Rows<const T>* part : {&parts.past, &parts.fresh}) {
      *to = {reinterpret_cast<const uint4*>(part->data), part->batch / step, part->head / step, part->row / step};
      to = &words.fresh;
    }
    join_rows_kernel<<<blocks_for(all / step, threads_per_block), threads_per_block, 0, stream>>>(
        all / step, JoinSizes{heads, past, rows, size / step}, words, static_cast<uint4*>(y));
  } else {
    join_rows_kernel<<<blocks_for(all, threads_per_block), threads_per_block, 0, stream>>>(
        all, JoinSizes{heads, past, rows, size}, parts, static_cast<T*>(y));
  }
}

}  // namespace ortisan
