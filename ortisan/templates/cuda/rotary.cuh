// Rotary embeddings: pairs among the first `size` elements of a row are turned, (a, b) -> (a cos - b sin, b cos + a sin).
//
// x[B,H,S,D] is read through strides, elements of a row adjacent, and y[B,H,S,D] written without any. Tables have a column
// for each pair, or for each element.
#pragma once

#include "launch.cuh"
#include "types.h"

namespace ortisan {

template <class T>
struct RotaryRows {
  const T* data;
  int64_t batch, head, row;  // strides

  __device__ const T* at(int64_t b, int64_t h, int64_t s) const { return data + b * batch + h * head + s * row; }
};

template <class T>
struct RotaryCall {
  int64_t batch, heads, queries, width, size, columns;
  RotaryRows<T> x, cos, sin;
  T* y;
};

template <class T, bool interleaved>
__global__ void rotary_rows(const RotaryCall<T> call) {
  const int64_t all = call.batch * call.heads * call.queries * call.width, half = call.size / 2;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += int64_t(gridDim.x) * blockDim.x) {
    const int64_t d = at % call.width, row = at / call.width;
    const int64_t s = row % call.queries, h = row / call.queries % call.heads, b = row / call.queries / call.heads;
    const T* x = call.x.at(b, h, s);
    if (d >= call.size) {
      call.y[at] = x[d];
      continue;
    }
    const bool second = interleaved ? d % 2 == 1 : d >= half;
    const int64_t other = interleaved ? d ^ 1 : second ? d - half : d + half, pair = interleaved ? d / 2 : d % half;
    const int64_t column = call.columns == half ? pair : d;
    const float cosine = load(call.cos.at(b, h, s)[column]), sine = load(call.sin.at(b, h, s)[column]);
    const float turned = load(x[other]) * sine;
    call.y[at] = store<T>(load(x[d]) * cosine + (second ? turned : -turned));
  }
}

// numbers: the sizes of a call, then for x, cos and sin: which tensor, where it begins, and its strides. y is the last tensor.
template <class T, bool interleaved>
void rotary(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  RotaryCall<T> call{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
  numbers += 6;
  for (RotaryRows<T>* rows : {&call.x, &call.cos, &call.sin}) {
    *rows = {static_cast<const T*>(tensors[numbers[0]]) + numbers[1], numbers[2], numbers[3], numbers[4]};
    numbers += 5;
  }
  call.y = static_cast<T*>(tensors[numbers[0]]);
  const int64_t all = call.batch * call.heads * call.queries * call.width;
  if (all > 0) {
    rotary_rows<T, interleaved><<<blocks_for(all, threads_per_block), threads_per_block, 0, stream>>>(call);
  }
}

}  // namespace ortisan
