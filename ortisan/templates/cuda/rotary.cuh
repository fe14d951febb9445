// Rotary embeddings: pairs (a, b) among the first `size` elements of each row become (a cos - b sin, b cos + a sin).
#pragma once

#include "launch.cuh"
#include "types.h"

namespace ortisan {

// x is [batch, heads, rows, width]; a table's row lies at the sum of the indices times its strides, which are 0 where it repeats.
struct RotaryShape {
  int64_t batch, heads, rows, width, size, columns;
  int64_t cosine[3], sine[3];
};

// A row of a block for each row of x. Element j makes a pair with j + size / 2, or when `interleaved` with the one beside it.
template <bool interleaved, class T>
__global__ void rotary_kernel(RotaryShape s, const T* in, const T* cosines, const T* sines, T* out) {
  const int64_t count = s.batch * s.heads * s.rows, half = s.size / 2;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; at < count; at += int64_t(gridDim.x) * blockDim.y) {
    const int64_t r = at % s.rows, h = at / s.rows % s.heads, b = at / (s.rows * s.heads);
    const T* x = in + at * s.width;
    const T* cosine = cosines + b * s.cosine[0] + h * s.cosine[1] + r * s.cosine[2];
    const T* sine = sines + b * s.sine[0] + h * s.sine[1] + r * s.sine[2];
    for (int64_t j = threadIdx.x; j < s.width; j += blockDim.x) {
      float y = load(x[j]);
      if (j < s.size) {
        const bool second = interleaved ? j % 2 != 0 : j >= half;
        const int64_t partner = interleaved ? j ^ 1 : (second ? j - half : j + half);
        const int64_t angle = interleaved ? j / 2 : (s.columns == half && second ? j - half : j);
        const float other = load(x[partner]) * load(sine[angle]);
        y = y * load(cosine[angle]) + (second ? other : -other);
      }
      out[at * s.width + j] = store<T>(y);
    }
  }
}

// numbers: batch, heads, rows, width, size, columns, 3 strides of the cosines, 3 of the sines. tensors: x, cosines, sines, y.
template <bool interleaved, class T>
void rotary(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t* n = numbers;
  const RotaryShape shape{n[0], n[1], n[2], n[3], n[4], n[5], {n[6], n[7], n[8]}, {n[9], n[10], n[11]}};
  const int64_t rows = shape.batch * shape.heads * shape.rows;
  if (rows * shape.width == 0) return;
  const unsigned lanes = lanes_for(shape.width, 1, threads_per_block);
  const dim3 block(lanes, unsigned(threads_per_block) / lanes);
  rotary_kernel<interleaved><<<blocks_for(rows, block.y), block, 0, stream>>>(
      shape, static_cast<const T*>(tensors[0]), static_cast<const T*>(tensors[1]), static_cast<const T*>(tensors[2]),
      static_cast<T*>(tensors[3]));
}

}  // namespace ortisan
