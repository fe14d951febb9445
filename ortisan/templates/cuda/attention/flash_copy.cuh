// Rows of global memory into a tile of shared memory, with zeros where there is none, without waiting where a GPU can.
#pragma once

#include "flash_mma.cuh"

namespace ortisan {

template <class T>
constexpr int elements_per_load = 16 / int(sizeof(T));

// 16 bytes, or zeros. They are there after `finish_copies` and a barrier.
__device__ inline void copy_16(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = there ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}

__device__ inline void end_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups but the last `pending`.
template <int pending>
__device__ void finish_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

// tile[rows][stride] = the rows that row_at(r) points to, null for zeros. `width` columns are filled, `there` exist.
// `anywhere` is some address of global memory, from which nothing is read.
template <bool wide, int threads, int rows, int width, int stride, class T, class RowAt>
__device__ void copy_tile(T* tile, int there, const T* anywhere, const RowAt& row_at) {
  constexpr int step = wide ? elements_per_load<T> : 1, pieces = width / step;
  for (int piece = threadIdx.x; piece < rows * pieces; piece += threads) {
    const int row = piece / pieces, column = piece % pieces * step;
    const T* from = column < there ? row_at(row) : nullptr;
    T* to = tile + row * stride + column;
    if constexpr (wide) {
      copy_16(to, from ? from + column : anywhere, from != nullptr);
    } else {
      *to = from ? from[column] : T(0.0f);
    }
  }
}

}  // namespace ortisan
