// Convolutions of up to four filters, w[O][kernel_rows][kernel_columns][C]: a pixel of the output is a dot product for each. Their
// columns would leave most of a panel empty.
#pragma once

#include <cstdint>

#include "conv_output.h"
#include "lanes.h"

namespace ortisan {
namespace detail {

constexpr int64_t dot_pixels = 16;  // that are finished together

// sums[o] += x . w[o] over n neighbours, in vectors; what is left over goes to the first lanes.
template <class T, int64_t O>
ORTISAN_INLINE inline void add_dots(int64_t n, const T* x, const T* w, int64_t filter, lanes_t<T> (&sums)[O]) {
  constexpr int64_t lanes = lane_count<T>;
  int64_t k = 0;
  for (; k + lanes <= n; k += lanes) {
    const lanes_t<T> value = load_lanes(x + k);
    ORTISAN_UNROLL(4)
    for (int64_t o = 0; o < O; ++o) sums[o] += value * load_lanes(w + o * filter + k);
  }
  if (k < n) {
    const lanes_t<T> value = load_some_lanes(x + k, n - k);
    for (int64_t o = 0; o < O; ++o) sums[o] += value * load_some_lanes(w + o * filter + k, n - k);
  }
}

template <class T, int64_t O>
void dot_pixel(const ConvShape& s, int64_t image, int64_t y, int64_t column, const T* x, const T* w, T* out) {
  lanes_t<T> sums[O] = {};
  const int64_t run = s.kernel_columns * s.C, filter = s.kernel_rows * run;
  int64_t first = 0, last = s.kernel_columns;
  while (first < last && s.input_column(column, first) < 0) ++first;
  while (first < last && s.input_column(column, last - 1) >= s.W) --last;
  for (int64_t i = 0; i < s.kernel_rows && first < last; ++i) {
    if (!s.is_inside(y, i)) continue;
    const T* row = x + (image * s.H + s.input_row(y, i)) * s.W * s.C;
    const int64_t together = s.dilation_x == 1 ? last - first : 1;
    for (int64_t j = first; j < last; j += together) {
      add_dots<T, O>(together * s.C, row + s.input_column(column, j) * s.C, w + i * run + j * s.C, filter, sums);
    }
  }
  ORTISAN_UNROLL(4)
  for (int64_t o = 0; o < O; ++o) out[o] = sum_lanes(sums[o]);
}

template <class T, int64_t O>
void dot_pixels_of(Context& c, const ConvCall<T>& call) {
  const ConvShape& s = call.shape;
  const int64_t pixels = s.N * s.rows * s.columns, work = s.kernel_rows * s.kernel_columns * s.C * O;
  parallel_ranges(c, ceil_quotient(pixels, dot_pixels), dot_pixels * work, [&](int64_t begin, int64_t end) {
    T sums[dot_pixels * O];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t from = block * dot_pixels, count = min_of(dot_pixels, pixels - from);
      for (int64_t p = 0; p < count; ++p) {
        const int64_t at = from + p;
        dot_pixel<T, O>(s, at / s.columns / s.rows, at / s.columns % s.rows, at % s.columns, call.x, call.w,
                        sums + p * O);
      }
      call.output.epilogue(from, count, 0, sums, O, O);
    }
  });
}

}  // namespace detail

template <class T>
void dot2d(Context& c, const ConvCall<T>& call) {
  if (call.shape.O == 1) return detail::dot_pixels_of<T, 1>(c, call);
  if (call.shape.O == 2) return detail::dot_pixels_of<T, 2>(c, call);
  if (call.shape.O == 3) return detail::dot_pixels_of<T, 3>(c, call);
  detail::dot_pixels_of<T, 4>(c, call);
}

}  // namespace ortisan
