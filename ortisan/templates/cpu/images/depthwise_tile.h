// The tile of a depthwise convolution: up to 8 neighbours in a row of the output, for filters of 3 or 5 columns.
//
// A vector of the input is loaded once for all windows of a row that it is in. Input columns outside of [from, to) of the tile's are
// left out: they are outside of the image. Sums are added up in the order of the taps, as in windows.h.
#pragma once

#include <cstdint>

#include "conv_output.h"
#include "conv_shape.h"
#include "vectors.h"

namespace ortisan::detail {

constexpr int64_t depthwise_pixels = 8;

// Where a tile reads: row i of its filters at x + i * row, its columns `step` apart; w[i * K + j] at w + (i * K + j) * taps. Rows
// from `turn` on are `ring` elements before that.
template <class T>
struct DepthwiseSource {
  const T* x;
  int64_t row, step;
  int64_t first_row, last_row;  // of the filters, that meet the image
  int64_t from, to;  // columns of the tile, that meet the image
  const T* w;
  int64_t taps;
  int64_t turn, ring;
};

// Sums of P pixels for `channels` >= a vector of channels: out[p * width + c]. With Clamps, what the clamp makes of them.
template <class T, int64_t K, int64_t S, int64_t P, bool Clamps>
[[gnu::noinline]] void depthwise_tile(const DepthwiseSource<T>& source, int64_t channels, T* out, int64_t width,
                                      const Clamp<T>& clamp) {
  constexpr int64_t L = vector_bytes / int64_t(sizeof(T)), columns = (P - 1) * S + K;
  typedef T vector __attribute__((vector_size(vector_bytes)));
  typedef T unaligned __attribute__((vector_size(vector_bytes), aligned(alignof(T)), may_alias));
  const DepthwiseSource<T> s = source;
  const vector low = clamp.low - vector{}, high = clamp.high - vector{};
  for (int64_t next = 0; next < channels; next += L) {
    const int64_t c = min_of(next, channels - L);
    vector sums[P] = {};
    for (int64_t i = s.first_row; i < s.last_row; ++i) {
      const T* x = s.x + i * s.row + c - (i >= s.turn ? s.ring : 0);
      const T* w = s.w + i * K * s.taps + c;
      vector factors[K];
      ORTISAN_UNROLL(5)
      for (int64_t j = 0; j < K; ++j) factors[j] = *reinterpret_cast<const unaligned*>(w + j * s.taps);
      ORTISAN_UNROLL(32)
      for (int64_t column = 0; column < columns; ++column, x += s.step) {
        keep_in_register(x);
        if (column < K && column < s.from) continue;
        if (column >= columns - K && column >= s.to) continue;
        vector value = *reinterpret_cast<const unaligned*>(x);
        keep_in_register(value);
        ORTISAN_UNROLL(8)
        for (int64_t p = 0; p < P; ++p) {
          if (column >= p * S && column < p * S + K) sums[p] += value * factors[column - p * S];
        }
      }
    }
    vector bias = {};
    if constexpr (Clamps) bias = *reinterpret_cast<const unaligned*>(clamp.bias + c);
    ORTISAN_UNROLL(8)
    for (int64_t p = 0; p < P; ++p) {
      if constexpr (Clamps) {
        const vector total = sums[p] + bias, raised = total < low ? low : total;
        sums[p] = raised > high ? high : raised;
      }
      *reinterpret_cast<unaligned*>(out + p * width + c) = sums[p];
    }
  }
}

template <class T>
using DepthwiseTile = void (*)(const DepthwiseSource<T>&, int64_t channels, T* out, int64_t width, const Clamp<T>&);

// The tiles of 1, 2, ... pixels of a convolution; null where there are none. Only the first and the last K columns of a tile may be
// outside of the image.
template <class T, bool Clamps>
const DepthwiseTile<T>* depthwise_tiles(const ConvShape& s) {
#define ORTISAN_TILES(K, S)                                                                                         \
  {                                                                                                                 \
    depthwise_tile<T, K, S, 1, Clamps>, depthwise_tile<T, K, S, 2, Clamps>, depthwise_tile<T, K, S, 3, Clamps>,     \
        depthwise_tile<T, K, S, 4, Clamps>, depthwise_tile<T, K, S, 5, Clamps>, depthwise_tile<T, K, S, 6, Clamps>, \
        depthwise_tile<T, K, S, 7, Clamps>, depthwise_tile<T, K, S, 8, Clamps>                                      \
  }
  static constexpr DepthwiseTile<T> tiles[2][2][depthwise_pixels] = {{ORTISAN_TILES(3, 1), ORTISAN_TILES(3, 2)},
                                                                     {ORTISAN_TILES(5, 1), ORTISAN_TILES(5, 2)}};
#undef ORTISAN_TILES
  const int64_t K = s.kernel_columns, end = s.input_column(s.columns - 1, K);
  const bool usual = (K == 3 || K == 5) && s.stride_x <= 2 && s.dilation_x == 1;
  if (!usual || s.left > K || end > s.W + K || s.C < vector_bytes / int64_t(sizeof(T))) return nullptr;
  return tiles[K / 4][s.stride_x - 1];
}

template <class T>
const DepthwiseTile<T>* depthwise_tiles(const ConvShape& s, const Clamp<T>& clamp) {
  return clamp.bias != nullptr ? depthwise_tiles<T, true>(s) : depthwise_tiles<T, false>(s);
}

}  // namespace ortisan::detail
