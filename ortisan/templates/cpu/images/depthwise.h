// Convolutions with one filter per channel: w[kernel_rows * kernel_columns][C].
#pragma once

#include <cstdint>

#include "conv_output.h"
#include "windows.h"

namespace ortisan {
namespace detail {

template <class T>
struct Depthwise {
  static constexpr bool has_filters = true;
  static constexpr T start = T(0);
  template <class V>
  static V add(V sum, V x, V w) {
    return sum + x * w;
  }
};

}  // namespace detail

template <class T>
void depthwise2d(Context& c, const ConvCall<T>& call) {
  detail::for_windows<detail::Depthwise<T>, T>(
      c, call.shape, call.x, call.w,
      [&](int64_t pixel, int64_t count, int64_t channel, const T* sums, int64_t channels, int64_t, int64_t) {
        call.output.epilogue(pixel, count, channel, sums, channels, channels);
      });
}

}  // namespace ortisan
