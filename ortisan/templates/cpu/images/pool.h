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
