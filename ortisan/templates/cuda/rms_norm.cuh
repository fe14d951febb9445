// Normalisation by the root of the mean square: y = x / sqrt(mean(x^2) + epsilon) [gamma], over rows of n elements.
#pragma once

#include "block.cuh"
#include "types.h"

namespace ortisan {

template <class T, bool scaled>
__global__ void rms_norm_rows(int64_t rows, int64_t n, float epsilon, const T* in, const T* gamma, T* out) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = in + row * n;
    T* y = out + row * n;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float element = load(x[i]);
      squares += element * element;
    }
    squares = block_reduce(squares, 0.0f, [](float a, float b) { return a + b; });
    const float root = sqrtf(squares / static_cast<float>(n) + epsilon);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float normal = load(x[i]) / root;
      y[i] = store<T>(scaled ? normal * load(gamma[i]) : normal);
    }
  }
}

// numbers: rows, n, epsilon as bits. tensors: x, gamma if there is one, y.
template <class T, bool scaled>
void rms_norm(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t rows = numbers[0], n = numbers[1];
  if (rows * n == 0) return;
  const T* gamma = scaled ? static_cast<const T*>(tensors[1]) : nullptr;
  rms_norm_rows<T, scaled><<<blocks_for(rows, 1), lanes_for(n, 32, threads_per_block), 0, stream>>>(
      rows, n, as_float(numbers[2]), static_cast<const T*>(tensors[0]), gamma,
      static_cast<T*>(tensors[scaled ? 2 : 1]));
}

}  // namespace ortisan
