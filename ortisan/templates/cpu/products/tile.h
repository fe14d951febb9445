// The register tile: sums[Rows x NR] += a[Rows x K] * b[K x NR], the one loop matrix products spend their time in.
//
//            b: NR columns, V vectors          sums stay in registers over all of K:
//          k +---- ... ----+                     AVX2 float: 6 rows x 2 vectors = 12 of 16 registers,
//            +---- ... ----+                     + 2 for the row of b + 1 for the broadcast of a
//     k
//   r +--+   +---- ... ----+   Each sum is added up in the order of k, whatever the number of rows: a row of a product does
//     |  |   |    sums     |   not depend on the rows computed with it.
//     +--+   +---- ... ----+
//
// A family of tiles is one struct:
//
//   rows, panels           the most rows of a tile, and the most panels under that many rows
//   prefetches             whether a tile fetches what is read next
//   halves                 whether there is an add_half<Rows, Panels>(t), for a last panel that is half empty
//   clamps                 whether there is an add_clamped<Rows, Panels>(t), which writes the results by itself; these two
//                          fetch one line of each panel per eight steps of k at most
//   has<Rows, Panels>      whether there is a tile of that shape
//   add<Rows, Panels>(t)   computes one
#pragma once

#include <cstdint>

#include "clamp.h"
#include "tile_bf16.h"
#include "tile_call.h"
#include "tile_plain.h"
#include "vectors.h"

#if defined(ORTISAN_PLAIN_TILES)
namespace ortisan::detail {
using TileFloat = TilePlain<float>;
}
#elif defined(__AVX512F__)
#include "tile_avx512.h"
namespace ortisan::detail {
using TileFloat = TileAvx512;
}
#elif defined(__AVX2__) && defined(__FMA__)
#include "tile_avx2.h"
namespace ortisan::detail {
using TileFloat = TileAvx2;
}
#elif defined(__aarch64__)
#include "tile_neon.h"
namespace ortisan::detail {
using TileFloat = TileNeon;
}
#else
namespace ortisan::detail {
using TileFloat = TilePlain<float>;
}
#endif

namespace ortisan {
namespace detail {

template <class P>
struct TileOf {
  using type = TilePlain<P>;
};
template <>
struct TileOf<float> {
  using type = TileFloat;
};
#if defined(__AVX512BF16__) && !defined(ORTISAN_PLAIN_TILES)
template <>
struct TileOf<bfloat16> {
  using type = TileAvx512Bf16;
};
#endif

// The tiles of factors of a type. What they multiply a product of T with panels of W as: itself, or what it is converted to.
template <class P>
using tile_of = typename TileOf<P>::type;
template <class T, class W = T>
using factor_t =
    std::conditional_t<std::is_same_v<T, W> && std::is_same_v<T, bfloat16> && multiplies_bfloat16, T, compute_t<T>>;

// The family that has a shape: the type's own, else the thin tiles.
template <class P, int64_t Rows, int64_t Panels>
using tile_for = std::conditional_t<tile_of<P>::template has<Rows, Panels>, tile_of<P>, TileThin<P>>;

}  // namespace detail

// Most rows of a tile, and the panels of a tile of that height.
template <class P>
constexpr int64_t tile_rows = detail::tile_of<P>::rows;
template <class P>
constexpr int64_t tile_panels = detail::tile_of<P>::panels;

namespace detail {

// Most rows of what is computed over so many panels at once.
template <class P>
constexpr int64_t rows_over(int64_t panels) {
  return panels <= tile_panels<P> ? tile_rows<P> : TileThin<P>::rows;
}

// One tile of `rows` <= Rows rows; with Half, half of the last panel is empty.
template <class P, int64_t Rows, int64_t Panels, bool Half = false>
inline void add_shape(int64_t rows, int64_t K, const P* a, int64_t lda, const P* b, int64_t ldb, int64_t panel_stride,
                      compute_t<P>* sums, int64_t ld_sums, bool more, const Next& next) {
  using Tile = tile_for<P, Rows, Panels>;
  static_assert(Tile::template has<Rows, Panels>,
                "no register tile of this element type has so many rows over so many panels");
  if (rows == Rows) {
    if constexpr (Half)
      Tile::template add_half<Rows, Panels>(K, a, lda, b, ldb, panel_stride, sums, ld_sums, more, next);
    else
      Tile::template add<Rows, Panels>(K, a, lda, b, ldb, panel_stride, sums, ld_sums, more, next);
  } else if constexpr (Rows > 1) {
    add_shape<P, Rows - 1, Panels, Half>(rows, K, a, lda, b, ldb, panel_stride, sums, ld_sums, more, next);
  }
}

// One tile of `rows` <= tile_rows<P> rows over one panel, of which `columns` count; without `more` the sums begin at 0.
template <class P>
inline void add_tile(int64_t rows, int64_t K, const P* a, int64_t lda, const P* b, int64_t ldb, compute_t<P>* sums,
                     int64_t ld_sums, bool more, const Next& next = {}, int64_t columns = panel_width<P>) {
  if constexpr (tile_of<P>::halves) {
    if (2 * columns <= panel_width<P> && next.fetches <= 1)
      return add_shape<P, tile_rows<P>, 1, true>(rows, K, a, lda, b, ldb, 0, sums, ld_sums, more, next);
  }
  add_shape<P, tile_rows<P>, 1>(rows, K, a, lda, b, ldb, 0, sums, ld_sums, more, next);
}

// rows <= rows_over<P>(2) rows over two panels, or one row over four. Their sums lie side by side; `columns` of them count.
template <class P>
inline void add_panels(int64_t rows, int64_t panels, int64_t K, const P* a, int64_t lda, const P* b,
                       int64_t panel_stride, compute_t<P>* sums, bool more, const Next& next,
                       int64_t columns = 4 * panel_width<P>) {
  constexpr int64_t NR = panel_width<P>;
  if (panels == 4) {
    add_shape<P, 1, 4>(rows, K, a, lda, b, NR, panel_stride, sums, 4 * NR, more, next);
    return;
  }
  if constexpr (tile_of<P>::halves) {
    if (2 * columns <= 3 * NR && next.fetches <= 1)
      return add_shape<P, rows_over<P>(2), 2, true>(rows, K, a, lda, b, NR, panel_stride, sums, 2 * NR, more, next);
  }
  add_shape<P, rows_over<P>(2), 2>(rows, K, a, lda, b, NR, panel_stride, sums, 2 * NR, more, next);
}

// A tile of `rows` rows over 1 or 2 whole panels whose sums are clamped to `out`, rows `ld` apart.
template <class P, int64_t Rows = tile_rows<P>>
inline void add_clamped(int64_t rows, int64_t panels, int64_t K, const P* a, int64_t lda, const P* b,
                        int64_t panel_stride, compute_t<P>* out, int64_t ld, const Next& next, const Clamp<P>& clamp) {
  constexpr int64_t NR = panel_width<P>;
  if (rows == Rows) {
    if (panels == 1)
      tile_of<P>::template add_clamped<Rows, 1>(K, a, lda, b, NR, panel_stride, out, ld, next, clamp);
    else
      tile_of<P>::template add_clamped<Rows, 2>(K, a, lda, b, NR, panel_stride, out, ld, next, clamp);
  } else if constexpr (Rows > 1) {
    add_clamped<P, Rows - 1>(rows, panels, K, a, lda, b, panel_stride, out, ld, next, clamp);
  }
}

// sums[rows x NR] += a[rows x K] * b[K x NR] (= without `more`) for any number of rows, in tiles of nearly equal height: a low tile leaves most
// registers idle.
template <class P>
inline void add_tiles(int64_t rows, int64_t K, const P* a, int64_t lda, const P* b, int64_t ldb, compute_t<P>* sums,
                      int64_t ld_sums, bool more) {
  const int64_t tiles = (rows + tile_rows<P> - 1) / tile_rows<P>;
  const int64_t low = rows / tiles, higher = rows % tiles;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t height = low + (t < higher ? 1 : 0);
    add_tile<P>(height, K, a, lda, b, ldb, sums, ld_sums, more);
    a += height * lda;
    sums += height * ld_sums;
  }
}

}  // namespace detail
}  // namespace ortisan
