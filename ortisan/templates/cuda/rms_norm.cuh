// x / sqrt(mean(x x) + eps) gamma over rows of n elements.
#pragma once

#include "block.cuh"
#include "types.h"

namespace ortisan {

// A block for each row. Squares are summed in float; x is read twice, the second time from a cache.
template <class T>
__global__ void rms_norm_kernel(int64_t rows, int64_t n, float epsilon, const T* in, const T* gamma, T* out) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = in + row * n;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += load(x[i]) * load(x[i]);
    sum = block_reduce(sum, 0.0f, [](float a, float b) { return a + b; });
    const float root = sqrtf(sum / float(n) + epsilon);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      out[row * n + i] = store<T>(load(x[i]) / root * (gamma == nullptr ? 1.0f : load(gamma[i])));
  }
}

// numbers: rows, n. tensors: x, [gamma,] y. The epsilon is given as the bits of a float.
template <class T, bool has_gamma, uint32_t epsilon>
void rms_norm(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t rows = numbers[0], n = numbers[1];
  if (rows * n == 0) return;
  rms_norm_kernel<<<blocks_for(rows, 1), lanes_for(n, 32, threads_per_block), 0, stream>>>(
      rows, n, bit_cast<float>(epsilon), static_cast<const T*>(tensors[0]),
      has_gamma ? static_cast<const T*>(tensors[1]) : nullptr, static_cast<T*>(tensors[has_gamma ? 2 : 1]));
}

}  // namespace ortisan
