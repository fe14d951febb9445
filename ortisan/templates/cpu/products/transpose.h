// Small transposes in registers, for packing matrices whose columns lie along memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "pieces.h"
#include "types.h"

namespace ortisan::detail {

template <class C>
inline void transpose_plain(int64_t depth, int64_t columns, const C* src, int64_t stride, C* dst, int64_t width) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t j = 0; j < columns; ++j) dst[k * width + j] = src[j * stride + k];
  }
}

typedef float float8 __attribute__((vector_size(32)));
typedef float float8_unaligned __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t int8lanes __attribute__((vector_size(32)));

// GCC has the one since 4.7 and the other since 12, Clang has only the other.
#if defined(__clang__)
#define ORTISAN_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ORTISAN_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, int8lanes{__VA_ARGS__})
#endif

// Rows of 8 floats, `stride` apart, become columns `width` apart: three rounds of swaps between pairs of registers.
inline void transpose_8x8(const float* src, int64_t stride, float* dst, int64_t width) {
  float8 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = *reinterpret_cast<const float8_unaligned*>(src + i * stride);
  for (int i = 0; i < 8; i += 2) {
    t[i] = ORTISAN_SHUFFLE(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[i + 1] = ORTISAN_SHUFFLE(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = ORTISAN_SHUFFLE(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    r[i + 1] = ORTISAN_SHUFFLE(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    r[i + 2] = ORTISAN_SHUFFLE(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    r[i + 3] = ORTISAN_SHUFFLE(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = ORTISAN_SHUFFLE(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    t[i + 4] = ORTISAN_SHUFFLE(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) *reinterpret_cast<float8_unaligned*>(dst + i * width) = t[i];
}

#undef ORTISAN_SHUFFLE

// dst[k * width + j] = src[j * stride + k] for k < depth and j < columns <= width.
template <class C>
inline void transpose_into(int64_t depth, int64_t columns, const C* src, int64_t stride, C* dst, int64_t width) {
  if constexpr (std::is_same_v<C, float>) {
    const int64_t whole_depth = depth / 8 * 8, whole_columns = columns / 8 * 8;
    for (int64_t j = 0; j < whole_columns; j += 8) {
      for (int64_t k = 0; k < whole_depth; k += 8)
        transpose_8x8(src + j * stride + k, stride, dst + k * width + j, width);
    }
    transpose_plain(depth - whole_depth, whole_columns, src + whole_depth, stride, dst + whole_depth * width, width);
    transpose_plain(depth, columns - whole_columns, src + whole_columns * stride, stride, dst + whole_columns, width);
  } else {
    transpose_plain(depth, columns, src, stride, dst, width);
  }
}

}  // namespace ortisan::detail
