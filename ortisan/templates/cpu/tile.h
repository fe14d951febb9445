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

#if defined(ORTISAN_PLAIN_TILES)
#define ORTISAN_ASM_TILES 0
#elif defined(__AVX512F__)
#include "tile_avx512.h"
#define ORTISAN_TILE_AVX512 1
#define ORTISAN_ASM_TILES 1
#elif defined(__AVX2__) && defined(__FMA__)
#include "tile_avx2.h"
#define ORTISAN_TILE_AVX2 1
#define ORTISAN_ASM_TILES 1
#elif defined(__aarch64__)
#include "tile_neon.h"
#define ORTISAN_TILE_NEON 1
#define ORTISAN_ASM_TILES 1
#else
#define ORTISAN_ASM_TILES 0
#endif

#define ORTISAN_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ORTISAN_UNROLL(count) ORTISAN_PRAGMA(clang loop unroll_count(count))
#else
#define ORTISAN_UNROLL(count) ORTISAN_PRAGMA(GCC unroll count)
#endif

// Keeps a vector in a register: GCC would read it from memory again at each of its uses.
#if defined(__x86_64__)
#define ORTISAN_IN_REGISTER(v) asm("" : "+v"(v))
#elif defined(__aarch64__)
#define ORTISAN_IN_REGISTER(v) asm("" : "+w"(v))
#else
#define ORTISAN_IN_REGISTER(v) (void)(v)
#endif

namespace ortisan {

// The rows that fill the registers: of an asm tile, and of a tile whose registers the compiler chooses.
#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
constexpr int64_t asm_rows = 8, plain_rows = 8;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
constexpr int64_t asm_rows = 6, plain_rows = 6;
#elif defined(__aarch64__)
constexpr int vector_bytes = 16;
constexpr int64_t asm_rows = 6, plain_rows = 4;
#else
constexpr int vector_bytes = 16;
constexpr int64_t asm_rows = 2, plain_rows = 2;
#endif

// Columns of a packed panel. The same on every machine, because weights are packed when they are compiled.
template <class T>
constexpr int64_t panel_width = std::is_same_v<T, double> ? 8 : 16;

// Most rows of a tile.
template <class C>
constexpr int64_t tile_rows = ORTISAN_ASM_TILES && std::is_same_v<C, float> ? asm_rows : plain_rows;

// Panels of a tile of that height.
#if ORTISAN_TILE_AVX512
template <class C>
constexpr int64_t tile_panels = std::is_same_v<C, float> ? 2 : 1;
#else
template <class C>
constexpr int64_t tile_panels = 1;
#endif

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

// What is read after a tile, to be fetched into the cache meanwhile: `fetches` lines per eight steps of k, `stride` bytes apart.
struct Next {
  const char* from = nullptr;
  int64_t stride = 0, fetches = 0;

  // `bytes` bytes over K steps.
  static Next spread(const void* from, int64_t bytes, int64_t K) {
    const int64_t blocks = max_of(1, K / 8), lines = (bytes + 63) / 64;
    const int64_t fetches = lines == 0 ? 0 : (lines <= blocks ? 1 : 4);
    return {static_cast<const char*>(from), fetches == 0 ? 0 : max_of(1, bytes / (blocks * fetches)), fetches};
  }
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

#if ORTISAN_TILE_NEON
template <int64_t Rows>
struct Tile<float, Rows> {
  static void add(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb, float* sums, int64_t ld_sums,
                  bool more) {
    add_tile_neon<Rows>(K, a, lda, b, ldb, sums, ld_sums, more);
  }
};
#endif

// One tile of `rows` <= tile_rows<C> rows; without `more` the sums begin at 0.
template <class C, int64_t Rows = tile_rows<C>>
inline void add_tile(int64_t rows, int64_t K, const C* a, int64_t lda, const C* b, int64_t ldb, C* sums, int64_t ld_sums,
                     bool more, const Next& next = {}) {
  if (rows == Rows) {
#if ORTISAN_TILE_AVX2
    if constexpr (std::is_same_v<C, float>) {
      add_tile_avx2<Rows>(K, a, lda, b, ldb, sums, ld_sums, more, next.from, next.stride, next.fetches);
      return;
    }
#elif ORTISAN_TILE_AVX512
    if constexpr (std::is_same_v<C, float>) {
      add_tile_avx512<Rows, 1>(K, a, lda, b, ldb, sums, ld_sums, more, 0, next.from, next.stride, next.fetches);
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
      vector own[Rows];
      ORTISAN_UNROLL(4)
      for (int64_t r = 0; r < Rows; ++r) {
        own[r] = static_cast<U>(a[r * lda + k]) - vector{};  // the number in every lane
        if constexpr (Rows > 1) ORTISAN_IN_REGISTER(own[r]);
      }
      ORTISAN_UNROLL(4)
      for (int64_t p = 0; p < Panels; ++p) {
        ORTISAN_UNROLL(4)
        for (int64_t v = 0; v < V; ++v) {
          vector row = *reinterpret_cast<const unaligned*>(b + p * panel_stride + k * width + v * lanes);
          if constexpr (Rows > 1) ORTISAN_IN_REGISTER(row);
          ORTISAN_UNROLL(4)
          for (int64_t r = 0; r < Rows; ++r) s[r][p * V + v] += own[r] * row;
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

#if ORTISAN_TILE_AVX512
template <int64_t Rows = asm_rows>
inline void add_pair(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, int64_t panel_stride, float* sums,
                     int64_t ld_sums, bool more, const Next& next = {}) {
  if (rows == Rows) {
    add_tile_avx512<Rows, 2>(K, a, lda, b, panel_width<float>, sums, ld_sums, more, panel_stride, next.from, next.stride,
                             next.fetches);
  } else if constexpr (Rows > 1) {
    add_pair<Rows - 1>(rows, K, a, lda, b, panel_stride, sums, ld_sums, more, next);
  }
}
#endif

constexpr int64_t thin_tile_rows = 3;  // most rows over more panels than a tile has

// Most rows of what is computed over so many panels at once.
template <class C>
constexpr int64_t rows_over(int64_t panels) {
  return panels <= tile_panels<C> ? tile_rows<C> : thin_tile_rows;
}

// rows <= rows_over<C>(panels) rows over 2 or 4 panels, side by side in sums: tiles of two panels where there are such, else one row over
// four or two panels, or two or three rows over two.
template <class C>
inline void add_panels(int64_t rows, int64_t panels, int64_t K, const C* a, int64_t lda, const C* b, int64_t panel_stride, C* sums,
                       bool more, const Next& next) {
#if ORTISAN_TILE_AVX512
  if constexpr (std::is_same_v<C, float>) {
    if (panels == 2) return add_pair(rows, K, a, lda, b, panel_stride, sums, 2 * panel_width<C>, more, next);
  }
#endif
  (void)next;
  if (rows == 1 && panels == 4) ThinTile<C, 1, 4>::add(K, a, lda, b, panel_stride, sums, more);
  if (rows == 1 && panels == 2) ThinTile<C, 1, 2>::add(K, a, lda, b, panel_stride, sums, more);
  if (rows == 2 && panels == 2) ThinTile<C, 2, 2>::add(K, a, lda, b, panel_stride, sums, more);
  if (rows == 3 && panels == 2) ThinTile<C, 3, 2>::add(K, a, lda, b, panel_stride, sums, more);
}

// sums[rows x NR] += a[rows x K] * b[K x NR] (= without `more`) for any number of rows, in tiles of nearly equal height: a low tile leaves most
// registers idle.
template <class C>
inline void add_tiles(int64_t rows, int64_t K, const C* a, int64_t lda, const C* b, int64_t ldb, C* sums, int64_t ld_sums,
                      bool more) {
  const int64_t tiles = (rows + tile_rows<C> - 1) / tile_rows<C>;
  const int64_t low = rows / tiles, higher = rows % tiles;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t height = low + (t < higher ? 1 : 0);
    add_tile<C>(height, K, a, lda, b, ldb, sums, ld_sums, more);
    a += height * lda;
    sums += height * ld_sums;
  }
}

}  // namespace detail
}  // namespace ortisan
