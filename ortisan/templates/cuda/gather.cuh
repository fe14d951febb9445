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

// out[t, :] = data[indices[t, 0], .., indices[t, depth - 1], :] for each of `batch` equal parts, t < count. A row of a block for each t.
template <class E, class I>
__global__ void gather_nd_kernel(int64_t rows, int64_t count, int64_t depth, int64_t inner, Numbers<int64_t, 16> extent,
                                 const E* data, const I* indices, E* out, int32_t* fault, int64_t code) {
  int64_t part = inner;
  for (int64_t i = 0; i < depth; ++i) part *= extent[i];
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += int64_t(gridDim.x) * blockDim.y) {
    int64_t place = 0;
    bool inside = true;
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t index = wrapped_index(indices[row * depth + i], extent[i]);
      inside = inside && index >= 0;
      place = place * extent[i] + index;
    }
    if (!inside && threadIdx.x == 0) report(fault, code);
    const E* from = data + row / count * part + place * inner;
    E* to = out + row * inner;
    for (int64_t k = threadIdx.x; k < inner; k += blockDim.x) to[k] = inside ? from[k] : E{};
  }
}

// numbers: batch, count, depth, inner, 16 extents of the indexed dims, code. tensors: data, indices, out, fault.
template <class E, class I>
void gather_nd(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t rows = numbers[0] * numbers[1], inner = numbers[3];
  if (rows * inner == 0) return;
  const unsigned lanes = lanes_for(inner, 1, threads_per_block);
  const dim3 block(lanes, unsigned(threads_per_block) / lanes);
  gather_nd_kernel<E, I><<<blocks_for(rows, block.y), block, 0, stream>>>(
      rows, numbers[1], numbers[2], inner, Numbers<int64_t, 16>(numbers + 4), static_cast<const E*>(tensors[0]),
      static_cast<const I*>(tensors[1]), static_cast<E*>(tensors[2]), static_cast<int32_t*>(tensors[3]), numbers[20]);
}

// out[i_0 .. i_r] = data[i_0 .., indices[i_0 .. i_r] at `axis`, ..]; all have the same rank. A thread for each element.
template <class E, class I>
__global__ void gather_elements_kernel(int64_t count, int64_t rank, int64_t axis, Numbers<int64_t, 16> data_extent,
                                       Numbers<int64_t, 16> index_extent, const E* data, const I* indices, E* out,
                                       int32_t* fault, int64_t code) {
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += int64_t(gridDim.x) * blockDim.x) {
    const int64_t index = wrapped_index(indices[at], data_extent[axis]);
    if (index < 0) report(fault, code);
    int64_t place = 0, rest = at, stride = 1;
    for (int64_t i = rank - 1; i >= 0; --i) {
      place += (i == axis ? index : rest % index_extent[i]) * stride;
      rest /= index_extent[i];
      stride *= data_extent[i];
    }
    out[at] = index < 0 ? E{} : data[place];
  }
}

// numbers: count, rank, axis, 16 extents of data, 16 of the indices, code. tensors: data, indices, out, fault.
template <class E, class I>
void gather_elements(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t count = numbers[0];
  if (count == 0) return;
  gather_elements_kernel<E, I><<<blocks_for(count, threads_per_block), threads_per_block, 0, stream>>>(
      count, numbers[1], numbers[2], Numbers<int64_t, 16>(numbers + 3), Numbers<int64_t, 16>(numbers + 19),
      static_cast<const E*>(tensors[0]), static_cast<const I*>(tensors[1]), static_cast<E*>(tensors[2]),
      static_cast<int32_t*>(tensors[3]), numbers[35]);
}

}  // namespace ortisan
