// Normalisation of groups of channels: x[N,places,C] -> (x - mean) / sqrt(variance + epsilon) gamma + beta, where mean and
// variance are those of the C / groups channels of a group at all places of an image.
#pragma once

#include "block.cuh"
#include "types.h"

namespace ortisan {

struct GroupSizes {
  int64_t images, places, channels, groups;
};

// A block for each group of each image. The variance is that of differences to the mean, which a sum of squares would lose.
template <class T>
__global__ void group_norm_blocks(GroupSizes sizes, float epsilon, const T* in, const T* gamma, const T* beta, T* out) {
  const int64_t width = sizes.channels / sizes.groups, count = sizes.places * width;
  const auto add = [](float a, float b) { return a + b; };
  for (int64_t group = blockIdx.x; group < sizes.images * sizes.groups; group += gridDim.x) {
    const int64_t first = group % sizes.groups * width;
    const int64_t start = group / sizes.groups * sizes.places * sizes.channels + first;
    const auto place = [&](int64_t i) { return start + i / width * sizes.channels + i % width; };
    float sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += load(in[place(i)]);
    const float mean = block_reduce(sum, 0.0f, add) / static_cast<float>(count);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      const float difference = load(in[place(i)]) - mean;
      squares += difference * difference;
    }
    const float deviation = sqrtf(block_reduce(squares, 0.0f, add) / static_cast<float>(count) + epsilon);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      const int64_t at = place(i), channel = first + i % width;
      out[at] = store<T>((load(in[at]) - mean) / deviation * load(gamma[channel]) + load(beta[channel]));
    }
  }
}

// numbers: images, places, channels, groups, epsilon as bits. tensors: x, gamma, beta, y.
template <class T>
void group_norm(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const GroupSizes sizes{numbers[0], numbers[1], numbers[2], numbers[3]};
  if (sizes.images * sizes.places * sizes.channels == 0) return;
  const unsigned threads = lanes_for(sizes.places * (sizes.channels / sizes.groups), 32, 4 * threads_per_block);
  const T *x = static_cast<const T*>(tensors[0]), *gamma = static_cast<const T*>(tensors[1]);
  group_norm_blocks<<<blocks_for(sizes.images * sizes.groups, 1), threads, 0, stream>>>(
      sizes, as_float(numbers[4]), x, gamma, static_cast<const T*>(tensors[2]), static_cast<T*>(tensors[3]));
}

}  // namespace ortisan
