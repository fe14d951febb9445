// The register tile: sums[Rows x NR] += a[Rows x K] * b[K x NR], the one loop matrix products spend their time in.
//
//            b: NR columns, V vectors          sums stay in registers over all of K:
//          k +---- ... ----+                     AVX2 float: 6 rows x 2 vectors = 12 of 16 registers,
//            +---- ... ----+                     + 2 for the row of b + 1 for the broadcast of a
//     k
//   r +--+   +---- ... ----+   Each sum is added up in the order of k, whatever the number of rows: a row of a product does
//     |  |   |    sums     |   not depend on the rows computed with it.
//     +--+   +---- ... ----+
#pragma once

#include <cstdint>

#include "pieces.h"
#include "types.h"

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__) && !defined(ORTISAN_PLAIN_TILES)
#include "tile_avx2.h"
#define ORTISAN_TILE_AVX2 1
#else
#define ORTISAN_TILE_AVX2 0
#endif

#define ORTISAN_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ORTISAN_UNROLL(count) ORTISAN_PRAGMA(clang loop unroll_count(count))
#else
#define ORTISAN_UNROLL(count) ORTISAN_PRAGMA(GCC unroll count)
#endif

namespace ortisan {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

// Columns of a packed panel. The same on every machine, because weights are packed when they are compiled.
template <class T>
constexpr int64_t panel_width = std::is_same_v<T, double> ? 8 : 16;

// Most rows of a tile: what fills the registers.
template <class C>
constexpr int64_t tile_rows = vector_bytes == 64 ? 12 : (vector_bytes == 32 ? 6 : 2);

namespace detail {

// Integers are multiplied unsigned, which wraps.
template <class C, bool integer = std::is_integral_v<C>>
struct Wrapping {
  using type = C;
};
template <class C>
struct Wrapping<C, true> {
  using type = std::make_unsigned_t<C>;
};

// What is read after a product, to be fetched into the cache meanwhile.
struct Next {
  const void* from = nullptr;
  int64_t bytes = 0;
};

template <class C, int64_t Rows>
struct Tile {
  static constexpr int64_t width = panel_width<C>;

  // sums is [Rows][ld_sums]; with `more` it holds the sums of earlier blocks of k.
  [[gnu::noinline]] static void add(int64_t K, const C* __restrict a, int64_t lda, const C* __restrict b, int64_t ldb,
                                    C* __restrict sums, int64_t ld_sums, bool more) {
    constexpr int64_t lanes = min_of(vector_bytes / sizeof(C), width);
    constexpr int64_t V = width / lanes;
    using U = typename Wrapping<C>::type;
    typedef U vector __attribute__((vector_size(lanes * sizeof(C))));
    typedef U unaligned __attribute__((vector_size(lanes * sizeof(C)), aligned(alignof(C)), may_alias));
    vector s[Rows][V];
    ORTISAN_UNROLL(12)
    for (int64_t r = 0; r < Rows; ++r) {
      ORTISAN_UNROLL(4)
      for (int64_t v = 0; v < V; ++v) {
        s[r][v] = more ? *reinterpret_cast<const unaligned*>(sums + r * ld_sums + v * lanes) : vector{};
      }
    }
    ORTISAN_UNROLL(4)
    for (int64_t k = 0; k < K; ++k) {
      vector row[V];
      ORTISAN_UNROLL(4)
      for (int64_t v = 0; v < V; ++v) row[v] = *reinterpret_cast<const unaligned*>(b + k * ldb + v * lanes);
      ORTISAN_UNROLL(12)
      for (int64_t r = 0; r < Rows; ++r) {
        const U scale = static_cast<U>(a[r * lda + k]);
        ORTISAN_UNROLL(4)
        for (int64_t v = 0; v < V; ++v) s[r][v] += scale * row[v];
      }
    }
    ORTISAN_UNROLL(12)
    for (int64_t r = 0; r < Rows; ++r) {
      ORTISAN_UNROLL(4)
      for (int64_t v = 0; v < V; ++v) *reinterpret_cast<unaligned*>(sums + r * ld_sums + v * lanes) = s[r][v];
    }
  }
};

// One tile of `rows` <= tile_rows<C> rows; without `more` the sums begin at 0.
template <class C, int64_t Rows = tile_rows<C>>
inline void add_tile(int64_t rows, int64_t K, const C* a, int64_t lda, const C* b, int64_t ldb, C* sums, int64_t ld_sums,
                     bool more, const Next& next = {}) {
  if (rows == Rows) {
#if ORTISAN_TILE_AVX2
    if constexpr (std::is_same_v<C, float>) {
      const int64_t blocks = max_of(1, K / 8), lines = (next.bytes + 63) / 64;
      const int64_t fetches = lines == 0 ? 0 : (lines <= blocks ? 1 : 4);
      const int64_t stride = fetches == 0 ? 0 : max_of(1, next.bytes / (blocks * fetches));
      const char* from = static_cast<const char*>(next.from);
      add_tile_avx2<Rows>(K, a, lda, b, ldb, sums, ld_sums, more, from, stride, fetches);
      return;
    }
#endif
    Tile<C, Rows>::add(K, a, lda, b, ldb, sums, ld_sums, more);
  } else if constexpr (Rows > 1) {
    add_tile<C, Rows - 1>(rows, K, a, lda, b, ldb, sums, ld_sums, more, next);
  }
}

// Few rows over several panels, `panel_stride` apart: enough sums at a time that none waits for itself. sums is
// [Rows][Panels * width].
template <class C, int64_t Rows, int64_t Panels>
struct ThinTile {
  [[gnu::noinline]] static void add(int64_t K, const C* __restrict a, int64_t lda, const C* __restrict b, int64_t panel_stride,
                                    C* __restrict sums, bool more) {
    constexpr int64_t width = panel_width<C>;
    constexpr int64_t lanes = min_of(vector_bytes / sizeof(C), width);
    constexpr int64_t V = width / lanes;
    using U = typename Wrapping<C>::type;
    typedef U vector __attribute__((vector_size(lanes * sizeof(C))));
    typedef U unaligned __attribute__((vector_size(lanes * sizeof(C)), aligned(alignof(C)), may_alias));
    vector s[Rows][Panels * V];
    ORTISAN_UNROLL(4)
    for (int64_t r = 0; r < Rows; ++r) {
      ORTISAN_UNROLL(16)
      for (int64_t v = 0; v < Panels * V; ++v) {
        s[r][v] = more ? *reinterpret_cast<const unaligned*>(sums + (r * Panels * V + v) * lanes) : vector{};
      }
    }
    for (int64_t k = 0; k < K; ++k) {
      ORTISAN_UNROLL(4)
      for (int64_t p = 0; p < Panels; ++p) {
        ORTISAN_UNROLL(4)
        for (int64_t v = 0; v < V; ++v) {
          const vector row = *reinterpret_cast<const unaligned*>(b + p * panel_stride + k * width + v * lanes);
          ORTISAN_UNROLL(4)
          for (int64_t r = 0; r < Rows; ++r) s[r][p * V + v] += static_cast<U>(a[r * lda + k]) * row;
        }
      }
    }
    ORTISAN_UNROLL(4)
    for (int64_t r = 0; r < Rows; ++r) {
      ORTISAN_UNROLL(16)
      for (int64_t v = 0; v < Panels * V; ++v) {
        *reinterpret_cast<unaligned*>(sums + (r * Panels * V + v) * lanes) = s[r][v];
      }
    }
  }
};

// One row over four panels, or two or three rows over two.
template <class C>
inline void add_thin(int64_t rows, int64_t panels, int64_t K, const C* a, int64_t lda, const C* b, int64_t panel_stride, C* sums,
                     bool more) {
  if (rows == 1 && panels == 4) ThinTile<C, 1, 4>::add(K, a, lda, b, panel_stride, sums, more);
  if (rows == 2 && panels == 2) ThinTile<C, 2, 2>::add(K, a, lda, b, panel_stride, sums, more);
  if (rows == 3 && panels == 2) ThinTile<C, 3, 2>::add(K, a, lda, b, panel_stride, sums, more);
}

// sums[rows x NR] += a[rows x K] * b[K x NR] (= without `more`) for any number of rows, in tiles of nearly equal height: a low tile leaves most
// registers idle.
template <class C>
inline void add_tiles(int64_t rows, int64_t K, const C* a, int64_t lda, const C* b, int64_t ldb, C* sums, int64_t ld_sums,
                      bool more, const Next& next = {}) {
  const int64_t tiles = (rows + tile_rows<C> - 1) / tile_rows<C>;
  const int64_t share = next.bytes / tiles;
  int64_t r = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t height = rows / tiles + (t < rows % tiles ? 1 : 0);
    add_tile<C>(height, K, a + r * lda, lda, b, ldb, sums + r * ld_sums, ld_sums, more,
                {static_cast<const char*>(next.from) + t * share, share});
    r += height;
  }
}

}  // namespace detail
}  // namespace ortisan
