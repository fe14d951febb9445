// What depthwise convolutions and pools share: for each pixel of the output and each channel, a fold over the window around it.
//
// Channels are vectors. A tile is up to 8 neighbours in a row of the output whose windows meet the image in the same columns of
// the filters; as many sums as that stay in registers over the whole window. At the edges of the image pixels are alone,
// and take several vectors of channels at once instead. Where channels don't fill the last vector, it overlaps the one
// before it: the results are the same.
#pragma once

#include <cstdint>

#include "conv_shape.h"
#include "vectors.h"

namespace ortisan::detail {

constexpr int64_t window_pixels = 8;
constexpr int64_t window_channels = 512;  // at most as many are folded before the results are used
constexpr int64_t window_tasks = 32;
constexpr int64_t window_work = 50000;  // elements of windows that make a task worth a thread

// The part of the windows of a tile that meets the image.
struct Window {
  int64_t first_row, last_row, first_column, last_column;  // of the filters

  static constexpr Window of(const ConvShape& s, int64_t y, int64_t column) {
    Window w = {0, s.kernel_rows, 0, s.kernel_columns};
    while (w.first_row < w.last_row && s.input_row(y, w.first_row) < 0) ++w.first_row;
    while (w.first_row < w.last_row && s.input_row(y, w.last_row - 1) >= s.H) --w.last_row;
    while (w.first_column < w.last_column && s.input_column(column, w.first_column) < 0) ++w.first_column;
    while (w.first_column < w.last_column && s.input_column(column, w.last_column - 1) >= s.W) --w.last_column;
    return w;
  }
};

// Folds for P pixels and V vectors of L channels. x is where pixel (0, 0) of the first window would be, channel c; w the
// filters' element (0, 0, c), `C` elements between its taps.
template <class Fold, class T, int64_t L, int64_t P, int64_t V>
ORTISAN_INLINE inline void fold_window(const ConvShape& s, const Window& window, const T* x, const T* w, T* out,
                                       int64_t width) {
  typedef T vector __attribute__((vector_size(L * sizeof(T))));
  typedef T unaligned __attribute__((vector_size(L * sizeof(T)), aligned(alignof(T)), may_alias));
  vector acc[P][V];
  ORTISAN_UNROLL(8)
  for (int64_t p = 0; p < P; ++p) {
    ORTISAN_UNROLL(4)
    for (int64_t v = 0; v < V; ++v) acc[p][v] = Fold::start - vector{};
  }
  for (int64_t i = window.first_row; i < window.last_row; ++i) {
    for (int64_t j = window.first_column; j < window.last_column; ++j) {
      const T* from = x + (i * s.dilation_y * s.W + j * s.dilation_x) * s.C;
      const T* tap = w + (i * s.kernel_columns + j) * s.C;
      ORTISAN_UNROLL(4)
      for (int64_t v = 0; v < V; ++v) {
        vector factor{};
        if constexpr (Fold::has_filters) factor = *reinterpret_cast<const unaligned*>(tap + v * L);
        ORTISAN_UNROLL(8)
        for (int64_t p = 0; p < P; ++p) {
          const vector value = *reinterpret_cast<const unaligned*>(from + p * s.stride_x * s.C + v * L);
          acc[p][v] = Fold::add(acc[p][v], value, factor);
        }
      }
    }
  }
  ORTISAN_UNROLL(8)
  for (int64_t p = 0; p < P; ++p) {
    ORTISAN_UNROLL(4)
    for (int64_t v = 0; v < V; ++v) *reinterpret_cast<unaligned*>(out + p * width + v * L) = acc[p][v];
  }
}

// The same for `channels` >= L channels.
template <class Fold, class T, int64_t L, int64_t P>
[[gnu::noinline]] void fold_pixels(const ConvShape& s, const Window& window, int64_t channels, const T* x, const T* w,
                                   T* out) {
  constexpr int64_t V = P > 4 ? 1 : P > 2 ? 2 : 4;
  int64_t c = 0;
  for (; c + V * L <= channels; c += V * L) fold_window<Fold, T, L, P, V>(s, window, x + c, w + c, out + c, channels);
  if constexpr (V > 1) {
    for (; c + L <= channels; c += L) fold_window<Fold, T, L, P, 1>(s, window, x + c, w + c, out + c, channels);
  }
  if (c < channels) {
    c = channels - L;
    fold_window<Fold, T, L, P, 1>(s, window, x + c, w + c, out + c, channels);
  }
}

template <class Fold, class T, int64_t L, int64_t P = window_pixels>
void fold_some_pixels(int64_t pixels, const ConvShape& s, const Window& window, int64_t channels, const T* x,
                      const T* w, T* out) {
  if (pixels == P) return fold_pixels<Fold, T, L, P>(s, window, channels, x, w, out);
  if constexpr (P > 1) fold_some_pixels<Fold, T, L, P - 1>(pixels, s, window, channels, x, w, out);
}

template <class Fold, class T>
void fold_channels(int64_t pixels, const ConvShape& s, const Window& window, int64_t channels, const T* x, const T* w,
                   T* out) {
  constexpr int64_t lanes = vector_bytes / int64_t(sizeof(T));
  if (channels >= lanes) return fold_some_pixels<Fold, T, lanes>(pixels, s, window, channels, x, w, out);
  if constexpr (lanes > 4) {
    if (channels >= 4) return fold_some_pixels<Fold, T, 4>(pixels, s, window, channels, x, w, out);
  }
  fold_some_pixels<Fold, T, 1>(pixels, s, window, channels, x, w, out);
}

// Calls use(pixel, count, channel, results, channels, y, column) for the results of `count` neighbours from `pixel` on, which is
// the one in row y and this column of its image: results[i][c], `channels` channels from `channel` on.
template <class Fold, class T, class Use>
void for_windows(Context& c, const ConvShape& s, const T* x, const T* w, const Use& use) {
  const int64_t all = s.N * s.rows * s.columns;
  if (all <= 0 || s.C <= 0) return;
  const int64_t least = ceil_quotient(window_work, max_of(1, s.C * s.kernel_rows * s.kernel_columns));
  const Bands bands = Bands::of(s.N, s.rows, s.columns, max_of(least, ceil_quotient(all, window_tasks)));
  // Columns whose windows are whole.
  const int64_t last = s.kernel_columns - 1;
  const int64_t whole_from = min_of(s.columns, s.first_column(0, 0));
  const int64_t whole_to = max_of(whole_from, min_of(s.columns, s.first_column(last, s.W)));
  const int64_t blocks = ceil_quotient(s.C, window_channels);
  c.parallel(bands.count(), [&](int64_t task) {
    T results[window_pixels * window_channels];
    const Band band = Band::of(bands, task);
    const auto run = [&](int64_t y, int64_t begin, int64_t count) {
      const Window window = Window::of(s, y, begin);
      const T* corner = x + ((band.image * s.H + s.input_row(y, 0)) * s.W + s.input_column(begin, 0)) * s.C;
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t from = block * s.C / blocks, channels = (block + 1) * s.C / blocks - from;
        fold_channels<Fold, T>(count, s, window, channels, corner + from, w + from, results);
        use((band.image * s.rows + y) * s.columns + begin, count, from, results, channels, y, begin);
      }
    };
    const int64_t left = min_of(max_of(band.left, whole_from), band.right),
                  right = max_of(left, min_of(band.right, whole_to));
    const int64_t tiles = ceil_quotient(right - left, window_pixels);
    for (int64_t y = band.top; y < band.bottom; ++y) {
      for (int64_t column = band.left; column < left; ++column) run(y, column, 1);
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t begin = left + t * (right - left) / tiles;
        run(y, begin, left + (t + 1) * (right - left) / tiles - begin);
      }
      for (int64_t column = right; column < band.right; ++column) run(y, column, 1);
    }
  });
}

}  // namespace ortisan::detail
