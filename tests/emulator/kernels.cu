// Kernels for test_cuda.py.
#include <cstdint>

extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i] + expf(-x[i] * x[i]);
}

__device__ __noinline__ float norm(const float* x, int n) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < n; i += 32) sum += x[i] * x[i];
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffff, sum, by);
  return sqrtf(sum);
}

extern "C" __global__ void norms(const float* x, float* y, int rows, int n) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const float length = norm(x + row * n, n);
  if (threadIdx.x % 32 == 0) y[row] = length;
}

template <bool kBarrier>
__device__ void transpose(const float* x, float* y, int rows, int columns) {
  __shared__ float tile[16][17];
  const int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
  if (kBarrier) __syncthreads();
  const int to_row = blockIdx.x * 16 + threadIdx.y, to_column = blockIdx.y * 16 + threadIdx.x;
  if (to_row < columns && to_column < rows) y[to_row * rows + to_column] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void transposed(const float* x, float* y, int rows, int columns) {
  transpose<true>(x, y, rows, columns);
}
extern "C" __global__ void racing(const float* x, float* y, int rows, int columns) {
  transpose<false>(x, y, rows, columns);
}

extern "C" __global__ void collatz(const int64_t* x, int* y) {
  int64_t n = x[threadIdx.x];
  int steps = 0;
  while (n != 1) {
    n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    ++steps;
  }
  y[threadIdx.x] = steps;
}
