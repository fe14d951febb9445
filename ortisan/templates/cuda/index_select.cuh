// Reading by indices that are known at run time.
//
// Negative indices count from the end. For one that is out of range nothing is read: the result is 0, and the host is told.
#pragma once

#include "launch.cuh"

namespace ortisan {

// The index in [0, extent), or -1 when there is none.
template <class I>
__device__ inline int64_t wrapped_index(I index, int64_t extent) {
  const int64_t positive = index < 0 ? index + extent : index;
  return positive >= 0 && positive < extent ? positive : -1;
}

// out[o, i, k] = data[o, indices[i], k] for data [outer, extent, inner] and `count` indices; a row of a block for each (o, i).
template <class E, class I>
__global__ void index_select_kernel(int64_t rows, int64_t extent, int64_t inner, int64_t count, const E* data,
                                    const I* indices, E* out, int32_t* fault, int64_t code) {
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += int64_t(gridDim.x) * blockDim.y) {
    const int64_t index = wrapped_index(indices[row % count], extent);
    if (index < 0 && threadIdx.x == 0) report(fault, code);
    const E* from = data + (row / count * extent + index) * inner;
    E* to = out + row * inner;
    for (int64_t k = threadIdx.x; k < inner; k += blockDim.x) to[k] = index < 0 ? E{} : from[k];
  }
}

// Rows as elements of `bytes`: the widest that fits the rows and where they begin.
template <class E, class I>
bool select_as(int64_t outer, int64_t extent, int64_t row_bytes, int64_t count, void* const* tensors, int64_t code,
               cudaStream_t stream) {
  const auto misaligned = [](const void* place) { return reinterpret_cast<uintptr_t>(place) % sizeof(E) != 0; };
  if (row_bytes % int64_t(sizeof(E)) != 0 || misaligned(tensors[0]) || misaligned(tensors[2])) return false;
  const int64_t inner = row_bytes / int64_t(sizeof(E)), rows = outer * count;
  const unsigned lanes = lanes_for(inner, 1, threads_per_block);
  const dim3 block(lanes, unsigned(threads_per_block) / lanes);
  index_select_kernel<E, I><<<blocks_for(rows, block.y), block, 0, stream>>>(
      rows, extent, inner, count, static_cast<const E*>(tensors[0]), static_cast<const I*>(tensors[1]),
      static_cast<E*>(tensors[2]), static_cast<int32_t*>(tensors[3]), code);
  return true;
}

// numbers: outer, extent, inner, count, code. tensors: data, indices, out, fault.
template <class E, class I>
void index_select(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t outer = numbers[0], extent = numbers[1], count = numbers[3], code = numbers[4];
  const int64_t row_bytes = numbers[2] * int64_t(sizeof(E));
  if (outer * count * row_bytes == 0) return;
  if (select_as<uint4, I>(outer, extent, row_bytes, count, tensors, code, stream)) return;
  select_as<E, I>(outer, extent, row_bytes, count, tensors, code, stream);
}

}  // namespace ortisan
