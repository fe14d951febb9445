// What launches kernels of ours: how many threads, and how they share the work.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace ortisan {

constexpr int64_t threads_per_block = 256;
constexpr int64_t most_blocks = 65535;

// Blocks for so many units of work, `per_block` of them in each; kernels go on in steps of the grid for what is left.
inline unsigned blocks_for(int64_t work, int64_t per_block) {
  const int64_t blocks = (work + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
}

// The power of two from `low` to `high` that is next above n.
inline unsigned lanes_for(int64_t n, int64_t low, int64_t high) {
  int64_t lanes = low;
  while (lanes < n && lanes < high) lanes *= 2;
  return static_cast<unsigned>(lanes);
}

// The float whose bits a number is.
inline float as_float(int64_t bits) {
  const uint32_t low = static_cast<uint32_t>(bits);
  float x;
  memcpy(&x, &low, sizeof(x));
  return x;
}

// What a kernel is given by value.
template <class T, int count>
struct Numbers {
  T items[count > 0 ? count : 1];

  explicit Numbers(const T* list) {
    for (int i = 0; i < count; ++i) items[i] = list[i];
  }
  __host__ __device__ T operator[](int i) const { return items[i]; }
};

// Says to the host that an index was out of range, in memory of the host; `code` tells of which op.
__device__ inline void report(int32_t* fault, int64_t code) { *fault = static_cast<int32_t>(code); }

}  // namespace ortisan
