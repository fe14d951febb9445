// Softmax along an axis of any length: x [outer, n, inner] -> exp(x - max) / sum(exp(x - max)), or its logarithm.
#pragma once

#include "block.cuh"
#include "types.h"

namespace ortisan {

// A block for each row of n elements side by side.
template <class T, bool log>
__global__ void softmax_rows(int64_t rows, int64_t n, const T* in, T* out) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = in + row * n;
    T* y = out + row * n;
    float top = limits<float>::negative_infinity;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, load(x[i]));
    top = block_reduce(top, limits<float>::negative_infinity, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += expf(load(x[i]) - top);
    sum = block_reduce(sum, 0.0f, [](float a, float b) { return a + b; });
    const float log_sum = logf(sum);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float shifted = load(x[i]) - top;
      y[i] = store<T>(log ? shifted - log_sum : expf(shifted) / sum);
    }
  }
}

// A thread for each row; its elements are `inner` apart, those of its neighbours side by side.
template <class T, bool log>
__global__ void softmax_columns(int64_t columns, int64_t n, int64_t inner, const T* in, T* out) {
  for (int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; c < columns; c += int64_t(gridDim.x) * blockDim.x) {
    const int64_t first = c / inner * n * inner + c % inner;
    const T* x = in + first;
    T* y = out + first;
    float top = limits<float>::negative_infinity;
    for (int64_t i = 0; i < n; ++i) top = fmaxf(top, load(x[i * inner]));
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += expf(load(x[i * inner]) - top);
    const float log_sum = logf(sum);
    for (int64_t i = 0; i < n; ++i) {
      const float shifted = load(x[i * inner]) - top;
      y[i * inner] = store<T>(log ? shifted - log_sum : expf(shifted) / sum);
    }
  }
}

// numbers: outer, n, inner. tensors: x, y.
template <class T, bool log>
void softmax(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t outer = numbers[0], n = numbers[1], inner = numbers[2], rows = outer * inner;
  const T* x = static_cast<const T*>(tensors[0]);
  T* y = static_cast<T*>(tensors[1]);
  if (rows * n == 0) return;
  if (inner == 1) {
    softmax_rows<T, log><<<blocks_for(rows, 1), lanes_for(n, 32, threads_per_block), 0, stream>>>(rows, n, x, y);
  } else {
    const unsigned lanes = lanes_for(rows, 32, threads_per_block);
    softmax_columns<T, log><<<blocks_for(rows, lanes), lanes, 0, stream>>>(rows, n, inner, x, y);
  }
}

}  // namespace ortisan
