// Rotary position embedding: pairs (a, b) of a row's first elements become (a cos - b sin, b cos + a sin).
//
// A pair is the elements j and j + size / 2, or 2j and 2j + 1 when interleaved. The rest of the row is copied.
#pragma once

#include <cstdint>

#include "heads.h"
#include "loops.h"
#include "pieces.h"
#include "types.h"

namespace ortisan {

// x [B, H, S, D] with `size` rotated elements; the tables have size / 2 columns, or `size` of them when `wide`.
struct RotaryShape {
  int64_t B, H, S, D, size;
  bool wide;
};

namespace detail {

// The tables' second halves serve the second elements of the pairs; narrow tables are passed for both.
template <class T>
inline void rotate_halves(int64_t half, const T* x, const T* cos, const T* sin, const T* cos2, const T* sin2, T* y) {
  ORTISAN_INDEPENDENT
  for (int64_t j = 0; j < half; ++j) {
    const compute_t<T> a = load(x[j]), b = load(x[j + half]);
    y[j] = store<T>(a * load(cos[j]) - b * load(sin[j]));
    y[j + half] = store<T>(b * load(cos2[j]) + a * load(sin2[j]));
  }
}

template <class T>
inline void rotate_neighbours(int64_t half, const T* x, const T* cos, const T* sin, T* y) {
  ORTISAN_INDEPENDENT
  for (int64_t j = 0; j < half; ++j) {
    const compute_t<T> a = load(x[2 * j]), b = load(x[2 * j + 1]), c = load(cos[j]), s = load(sin[j]);
    y[2 * j] = store<T>(a * c - b * s);
    y[2 * j + 1] = store<T>(b * c + a * s);
  }
}

}  // namespace detail

// The output is contiguous. Strides of the tables are 0 where they are repeated.
template <class T, bool interleaved>
void rotary(Context& c, const RotaryShape& shape, const T* x, const HeadStrides& x_stride, const T* cos,
            const HeadStrides& cos_stride, const T* sin, const HeadStrides& sin_stride, T* out) {
  const int64_t half = shape.size / 2, second = shape.wide ? half : 0;
  parallel_ranges(c, shape.B * shape.H * shape.S, shape.D, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t row = at % shape.S, head = at / shape.S % shape.H, batch = at / shape.S / shape.H;
      const auto of = [=](const T* base, const HeadStrides& stride) {
        return base + batch * stride.batch + head * stride.head + row * stride.row;
      };
      const T *from = of(x, x_stride), *cosines = of(cos, cos_stride), *sines = of(sin, sin_stride);
      T* to = out + at * shape.D;
      if constexpr (interleaved) {
        detail::rotate_neighbours(half, from, cosines, sines, to);
      } else {
        detail::rotate_halves(half, from, cosines, sines, cosines + second, sines + second, to);
      }
      __builtin_memcpy(to + shape.size, from + shape.size, static_cast<uint64_t>(shape.D - shape.size) * sizeof(T));
    }
  });
}

}  // namespace ortisan
