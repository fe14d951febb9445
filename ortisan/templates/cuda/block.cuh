// What the threads of a block find together. A block has a multiple of 32 threads, and all of them take part.
#pragma once

#include "launch.cuh"

namespace ortisan {

constexpr unsigned all_lanes = 0xffffffffu;

// The value of the lane whose number differs in the bits of `distance`.
template <class T>
__device__ inline T exchanged(T value, int distance) {
  return __shfl_xor_sync(all_lanes, value, distance);
}

// join(a, b) over the values of all threads, in an order that depends on their number only; `neutral` changes nothing.
template <class T, class Join>
__device__ T block_reduce(T value, T neutral, Join join) {
  __shared__ T parts[32];
  for (int distance = 16; distance > 0; distance /= 2) value = join(value, exchanged(value, distance));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : neutral;
  for (int distance = 16; distance > 0; distance /= 2) value = join(value, exchanged(value, distance));
  __syncthreads();  // `parts` may be written again
  return value;
}

}  // namespace ortisan
