// The largest element and the mean of each window of an image.
#pragma once

#include <cstdint>

#include "types.h"
#include "windows.h"

namespace ortisan {
namespace detail {

template <class T>
struct Largest {
  static constexpr bool has_filters = false;
  static constexpr T start = limits<T>::negative_infinity;
  // A NaN stays.
  template <class V>
  static V add(V largest, V x, V) {
    return (largest >= x) | (largest != largest) ? largest : x;
  }
};

template <class T>
struct Total {
  static constexpr bool has_filters = false;
  static constexpr T start = T(0);
  template <class V>
  static V add(V sum, V x, V) {
    return sum + x;
  }
};

}  // namespace detail

template <class T>
void max_pool2d(Context& c, const ConvShape& s, const T* x, T* y) {
  detail::for_windows<detail::Largest<T>, T>(
      c, s, x, x,
      [&](int64_t pixel, int64_t count, int64_t channel, const T* largest, int64_t channels, int64_t, int64_t) {
        for (int64_t i = 0; i < count; ++i) {
          T* out = y + (pixel + i) * s.C + channel;
          for (int64_t j = 0; j < channels; ++j) out[j] = largest[i * channels + j];
        }
      });
}

// The same, and where in its image the first largest element is: row * W + column.
template <class T>
void max_pool2d_indices(Context& c, const ConvShape& s, const T* x, T* y, int64_t* places) {
  const int64_t work = max_of(1, s.columns * s.C * s.kernel_rows * s.kernel_columns);
  parallel_ranges(c, s.N * s.rows, work, [&](int64_t begin, int64_t end) {
    for (int64_t pixel = begin * s.columns; pixel < end * s.columns; ++pixel) {
      const int64_t image = pixel / s.columns / s.rows, row = pixel / s.columns % s.rows, column = pixel % s.columns;
      T* largest = y + pixel * s.C;
      int64_t* place = places + pixel * s.C;
      for (int64_t k = 0; k < s.C; ++k) {
        largest[k] = limits<T>::negative_infinity;
        place[k] = -1;
      }
      for (int64_t i = 0; i < s.kernel_rows; ++i) {
        for (int64_t j = 0; s.is_inside(row, i) && j < s.kernel_columns; ++j) {
          const int64_t from_row = s.input_row(row, i), from_column = s.input_column(column, j);
          if (from_column < 0 || from_column >= s.W) continue;
          const int64_t at = from_row * s.W + from_column;
          const T* from = x + (image * s.H * s.W + at) * s.C;
          ORTISAN_INDEPENDENT
          for (int64_t k = 0; k < s.C; ++k) {
            const bool is_larger =
                (from[k] > largest[k]) | (place[k] < 0) | ((from[k] != from[k]) & (largest[k] == largest[k]));
            place[k] = is_larger ? at : place[k];
            largest[k] = is_larger ? from[k] : largest[k];
          }
        }
      }
    }
  });
}

// Means over what is inside of the image, or with `counts_padding` over what is above row H + bottom and left of column W + right.
template <class T>
void mean_pool2d(Context& c, const ConvShape& s, int64_t bottom, int64_t right, bool counts_padding, const T* x, T* y) {
  const auto met = [](int64_t start, int64_t step, int64_t count, int64_t low, int64_t high) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) found += start + i * step >= low && start + i * step < high ? 1 : 0;
    return found;
  };
  const int64_t before = counts_padding ? limits<int64_t>::lowest : 0;
  bottom = counts_padding ? bottom : 0;
  right = counts_padding ? right : 0;
  detail::for_windows<detail::Total<T>, T>(
      c, s, x, x,
      [&](int64_t pixel, int64_t count, int64_t channel, const T* totals, int64_t channels, int64_t row,
          int64_t column) {
        const int64_t rows = met(s.input_row(row, 0), s.dilation_y, s.kernel_rows, before, s.H + bottom);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t columns =
              met(s.input_column(column + i, 0), s.dilation_x, s.kernel_columns, before, s.W + right);
          const T elements = static_cast<T>(rows * columns);
          T* out = y + (pixel + i) * s.C + channel;
          for (int64_t j = 0; j < channels; ++j) out[j] = totals[i * channels + j] / elements;
        }
      });
}

}  // namespace ortisan
