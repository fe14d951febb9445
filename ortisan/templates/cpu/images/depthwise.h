// Convolutions with one filter per channel: w[kernel_rows * kernel_columns][C].
//
// The usual filters, 3 or 5 columns with a stride of 1 or 2, run tile by tile down the image, some channels at a time, so that
// the rows that windows share stay in the L1 cache. All others fold windows as pools do.
#pragma once

#include <cstdint>

#include "conv_output.h"
#include "depthwise_tile.h"
#include "windows.h"

namespace ortisan {
namespace detail {

constexpr int64_t depthwise_tasks = 16;
constexpr int64_t depthwise_channels = 128;  // at most as many at a time
constexpr int64_t depthwise_work = 50000;  // multiplications that make a task worth a thread

template <class T>
struct Depthwise {
  static constexpr bool has_filters = true;
  static constexpr T start = T(0);
  template <class V>
  static V add(V sum, V x, V w) {
    return sum + x * w;
  }
};

template <class T>
void depthwise_band(const ConvCall<T>& call, const DepthwiseTile<T>* tiles, const Band& band, int64_t channel,
                    int64_t channels) {
  const ConvShape& s = call.shape;
  const int64_t count = ceil_quotient(band.right - band.left, depthwise_pixels);
  T sums[depthwise_pixels * depthwise_channels];
  for (int64_t t = 0; t < count; ++t) {
    const int64_t begin = band.left + t * (band.right - band.left) / count;
    const int64_t pixels = band.left + (t + 1) * (band.right - band.left) / count - begin;
    const int64_t left = s.input_column(begin, 0);
    for (int64_t y = band.top; y < band.bottom; ++y) {
      int64_t first = 0, last = s.kernel_rows;
      while (first < last && s.input_row(y, first) < 0) ++first;
      while (first < last && s.input_row(y, last - 1) >= s.H) --last;
      const T* corner = call.x + ((band.image * s.H + s.input_row(y, 0)) * s.W + left) * s.C + channel;
      const DepthwiseSource<T> source = {corner,     s.dilation_y * s.W * s.C, s.C, first,         last, -left,
                                         s.W - left, call.w + channel,         s.C, s.kernel_rows, 0};
      const int64_t pixel = (band.image * s.rows + y) * s.columns + begin;
      const Clamp<T>& clamp = call.output.clamp;
      if (clamp.bias != nullptr) {
        tiles[pixels - 1](source, channels, call.output.out + pixel * s.C + channel, s.C, clamp.from(channel));
      } else {
        tiles[pixels - 1](source, channels, sums, channels, clamp);
        call.output.epilogue(pixel, pixels, channel, sums, channels, channels);
      }
    }
  }
}

}  // namespace detail

template <class T>
void depthwise2d(Context& c, const ConvCall<T>& call) {
  const ConvShape& s = call.shape;
  const detail::DepthwiseTile<T>* tiles = detail::depthwise_tiles<T>(s, call.output.clamp);
  const int64_t pixels = s.N * s.rows * s.columns;
  if (tiles == nullptr) {
    detail::for_windows<detail::Depthwise<T>, T>(
        c, s, call.x, call.w,
        [&](int64_t pixel, int64_t count, int64_t channel, const T* sums, int64_t channels, int64_t, int64_t) {
          call.output.epilogue(pixel, count, channel, sums, channels, channels);
        });
  } else if (pixels > 0) {
    const int64_t least = ceil_quotient(detail::depthwise_work, s.C * s.kernel_rows * s.kernel_columns);
    const int64_t each = max_of(least, ceil_quotient(pixels, detail::depthwise_tasks));
    const detail::Bands bands = detail::Bands::of(s.N, s.rows, s.columns, each);
    // Whole vectors but for the last, so that lines of the cache are not split.
    constexpr int64_t lanes = vector_bytes / int64_t(sizeof(T));
    const int64_t vectors = ceil_quotient(s.C, lanes), blocks = ceil_quotient(s.C, detail::depthwise_channels);
    c.parallel(bands.count(), [&](int64_t task) {
      const detail::Band band = detail::Band::of(bands, task);
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t from = block * vectors / blocks * lanes;
        const int64_t to = min_of(s.C, (block + 1) * vectors / blocks * lanes);
        detail::depthwise_band(call, tiles, band, from, to - from);
      }
    });
  }
}

}  // namespace ortisan
