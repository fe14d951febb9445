// Convolutions of 3 x 3 filters and stride 1 by Winograd's F(4 x 4, 3 x 3): 36 products give 16 pixels, where 144 would.
//
//   V = B^T d B    a tile of 6 x 6 pixels of the input, for each channel: B's polynomials at 0, p, -p, q, -q and infinity
//   U = G w G^T    the filters, when the model is compiled
//   M[t] = V[t] U[t] for t < 36, products over tiles and channels        y = A^T M A    4 x 4 pixels of the output
//
// Tiles of all images are one list, cut into bands of 16. Waves of bands are transformed into the workspace, then multiplied
// band by band, a few panels of filters at a time, whose sums go through the second transform while they are in the cache. A tile
// does not depend on the others, so neither does a pixel on the batch or the threads.
//
// Points around 1 keep the coefficients close together: with 1 and 2 for p and q errors are twice as large. 3/4 and 3/2 make all
// coefficients of B and A exact.
#pragma once

#include <cstdint>

#include "conv_output.h"
#include "gemm.h"
#include "lanes.h"

namespace ortisan {
namespace detail {

constexpr int64_t winograd_size = 4, winograd_reach = 6, winograd_terms = 36, winograd_band = 16;
constexpr float winograd_p = 0.75f, winograd_q = 1.5f;  // kept in step with packing.py

// Elements of a term of a band; a line more, so that terms don't meet in one set of the cache. Kept in step with images.py.
constexpr int64_t winograd_term(int64_t channels) { return winograd_band * channels + 16; }

template <class V>
ORTISAN_INLINE inline void winograd_input(const V (&d)[6], V (&v)[6]) {
  constexpr float p = winograd_p, q = winograd_q, sum = p * p + q * q, product = p * p * q * q;
  const V a = d[4] - d[2] * (q * q), b = d[3] - d[1] * (q * q), c = d[4] - d[2] * (p * p), e = d[3] - d[1] * (p * p);
  v[0] = d[0] * product - d[2] * sum + d[4];
  v[1] = a + b * p;
  v[2] = a - b * p;
  v[3] = c + e * q;
  v[4] = c - e * q;
  v[5] = d[1] * product - d[3] * sum + d[5];
}

template <class V>
ORTISAN_INLINE inline void winograd_output(const V (&m)[6], V (&y)[4]) {
  const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
  constexpr float p = winograd_p, q = winograd_q;
  y[0] = m[0] + a + c;
  y[1] = b * p + e * q;
  y[2] = a * (p * p) + c * (q * q);
  y[3] = b * (p * p * p) + e * (q * q * q) + m[5];
}

struct WinogradTiles {
  int64_t down, across, all;

  static WinogradTiles of(const ConvShape& s) {
    const int64_t down = ceil_quotient(s.rows, winograd_size), across = ceil_quotient(s.columns, winograd_size);
    return {down, across, s.N * down * across};
  }
  int64_t image(int64_t tile) const { return tile / (down * across); }
  int64_t row(int64_t tile) const { return tile / across % down * winograd_size; }
  int64_t column(int64_t tile) const { return tile % across * winograd_size; }
};

// Transforms a tile: from[i][j] is a vector of channels where step[i][j] is 1, and zeros where it is 0.
inline void winograd_transform(int64_t channels, const float* const (&from)[6][6], const int64_t (&step)[6][6],
                               float* to, int64_t term) {
  using V = lanes_t<float>;
  for (int64_t c = 0; c < channels; c += lane_count<float>) {
    V half[6][6];
    ORTISAN_UNROLL(6)
    for (int64_t j = 0; j < 6; ++j) {
      V d[6], v[6];
      ORTISAN_UNROLL(6)
      for (int64_t i = 0; i < 6; ++i) d[i] = load_lanes(from[i][j] + step[i][j] * c);
      winograd_input(d, v);
      ORTISAN_UNROLL(6)
      for (int64_t i = 0; i < 6; ++i) half[i][j] = v[i];
    }
    ORTISAN_UNROLL(6)
    for (int64_t i = 0; i < 6; ++i) {
      V v[6];
      winograd_input(half[i], v);
      ORTISAN_UNROLL(6)
      for (int64_t j = 0; j < 6; ++j) __builtin_memcpy(to + (i * 6 + j) * term + c, &v[j], sizeof(V));
    }
  }
}

inline void winograd_read(const ConvShape& s, const WinogradTiles& tiles, int64_t tile, const float* x, float* to) {
  static const float zeros[lane_count<float>] = {};
  const float* from[6][6];
  int64_t step[6][6];
  const int64_t row = tiles.row(tile) - s.top, column = tiles.column(tile) - s.left;
  const float* image = x + tiles.image(tile) * s.H * s.W * s.C;
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 6; ++j) {
      const bool inside = uint64_t(row + i) < uint64_t(s.H) && uint64_t(column + j) < uint64_t(s.W);
      from[i][j] = inside ? image + ((row + i) * s.W + column + j) * s.C : zeros;
      step[i][j] = inside ? 1 : 0;
    }
  }
  winograd_transform(s.C, from, step, to, winograd_term(s.C));
}

// Writes 4 x 4 pixels for `width` filters from the terms m[t * term + ...].
inline void winograd_write(const ConvCall<float>& call, const WinogradTiles& tiles, int64_t tile, const float* m,
                           int64_t term, int64_t width, int64_t col) {
  using V = lanes_t<float>;
  const ConvShape& s = call.shape;
  float y[16 * panel_width<float> * tile_panels<float>];
  for (int64_t c = 0; c < width; c += lane_count<float>) {
    V half[4][6];
    ORTISAN_UNROLL(6)
    for (int64_t j = 0; j < 6; ++j) {
      V d[6], v[4];
      ORTISAN_UNROLL(6)
      for (int64_t i = 0; i < 6; ++i) d[i] = load_lanes(m + (i * 6 + j) * term + c);
      winograd_output(d, v);
      ORTISAN_UNROLL(4)
      for (int64_t i = 0; i < 4; ++i) half[i][j] = v[i];
    }
    ORTISAN_UNROLL(4)
    for (int64_t i = 0; i < 4; ++i) {
      V v[4];
      winograd_output(half[i], v);
      ORTISAN_UNROLL(4)
      for (int64_t j = 0; j < 4; ++j) __builtin_memcpy(y + (i * 4 + j) * width + c, &v[j], sizeof(V));
    }
  }
  const int64_t row = tiles.row(tile), column = tiles.column(tile), n = min_of(width, s.O - col);
  const int64_t count = min_of(winograd_size, s.columns - column);
  for (int64_t i = 0; i < min_of(winograd_size, s.rows - row); ++i) {
    const int64_t pixel = (tiles.image(tile) * s.rows + row + i) * s.columns + column;
    call.output.epilogue(pixel, count, col, y + i * 4 * width, width, n);
  }
}

// Panels [first, last) for the tiles of a band, whose terms are at v.
inline void winograd_band_of(const ConvCall<float>& call, const WinogradTiles& tiles, int64_t begin, int64_t end,
                             const float* v, int64_t first, int64_t last) {
  constexpr int64_t NR = panel_width<float>, most = tile_panels<float>;
  const ConvShape& s = call.shape;
  float sums[winograd_terms * winograd_band * NR * most];
  const int64_t rows = end - begin, per_term = packed_elements<float>(s.C, s.O);
  for (int64_t p = first; p < last;) {
    const int64_t panels = last - p < most ? 1 : most, width = panels * NR, term = winograd_band * width;
    const int64_t parts = ceil_quotient(rows, rows_over<float>(panels));
    for (int64_t t = 0; t < winograd_terms; ++t) {
      const float* b = call.w + t * per_term + p * s.C * NR;
      const char* next =
          reinterpret_cast<const char*>(t + 1 < winograd_terms ? b + per_term : call.w + (p + panels) * s.C * NR);
      const bool fetches =
          tile_of<float>::prefetches && call.blocking.prefetch && (t + 1 < winograd_terms || p + panels < last);
      const int64_t share = fetches ? s.C * NR * int64_t(sizeof(float)) / parts : 0;
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t r = i * rows / parts, height = (i + 1) * rows / parts - r;
        const float* a = v + t * winograd_term(s.C) + r * s.C;
        const Next fetched = Next::spread(next + i * share, share, s.C);
        if constexpr (most > 1) {
          if (panels > 1) {
            add_panels<float>(height, panels, s.C, a, s.C, b, s.C * NR, sums + t * term + r * width, false, fetched);
            continue;
          }
        }
        add_tile<float>(height, s.C, a, s.C, b, NR, sums + t * term + r * width, NR, false, fetched);
      }
    }
    for (int64_t i = 0; i < rows; ++i) winograd_write(call, tiles, begin + i, sums + i * width, term, width, p * NR);
    p += panels;
  }
}

}  // namespace detail

// `workspace` has room for the terms of min(wave, all) bands. C is a multiple of 16.
template <class T>
void winograd2d(Context& c, const ConvCall<T>& call, int64_t wave, T* workspace) {
  using namespace detail;
  const ConvShape& s = call.shape;
  const WinogradTiles tiles = WinogradTiles::of(s);
  const int64_t bands = ceil_quotient(tiles.all, winograd_band), panels = ceil_quotient(s.O, panel_width<float>);
  const int64_t units = ceil_quotient(panels, tile_panels<float>), size = winograd_terms * winograd_term(s.C);
  for (int64_t from = 0; from < bands; from += wave) {
    const int64_t count = min_of(wave, bands - from), first = from * winograd_band;
    const int64_t last = min_of(tiles.all, (from + count) * winograd_band);
    parallel_ranges(c, last - first, 2 * winograd_terms * s.C, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* to = workspace + i / winograd_band * size + i % winograd_band * s.C;
        winograd_read(s, tiles, first + i, call.x, to);
      }
    });
    const int64_t shares = min_of(units, ceil_quotient(16, count));
    c.parallel(count * shares, [&](int64_t task) {
      const int64_t band = task / shares, share = task % shares, begin = first + band * winograd_band;
      winograd_band_of(call, tiles, begin, min_of(last, begin + winograd_band), workspace + band * size,
                       share * units / shares * tile_panels<float>,
                       min_of(panels, (share + 1) * units / shares * tile_panels<float>));
    });
  }
}

}  // namespace ortisan
