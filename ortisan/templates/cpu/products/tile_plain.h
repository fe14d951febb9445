// Register tiles in C++ over compiler vectors: the tile of types and instruction sets that have none in assembly, and the thin
// tiles, which all have.
#pragma once

#include <cstdint>

#include "tile_call.h"
#include "vectors.h"

namespace ortisan::detail {

// Integers are multiplied unsigned, which wraps.
template <class C, bool integer = std::is_integral_v<C>>
struct Wrapping {
  using type = C;
};
template <class C>
struct Wrapping<C, true> {
  using type = std::make_unsigned_t<C>;
};

// The vectors that a row of a panel is made of.
template <class C>
struct PanelVectors {
  using U = typename Wrapping<C>::type;
  static constexpr int64_t width = panel_width<C>;
  static constexpr int64_t lanes = min_of(vector_bytes / sizeof(C), width);
  static constexpr int64_t V = width / lanes;
  typedef U vector __attribute__((vector_size(lanes * sizeof(C))));
  typedef U unaligned __attribute__((vector_size(lanes * sizeof(C)), aligned(alignof(C)), may_alias));
};

template <class C>
struct TilePlain {
  static constexpr int64_t rows = plain_tile_rows, panels = 1;
  static constexpr bool prefetches = false, halves = false, clamps = false;
  template <int64_t Rows, int64_t Panels>
  static constexpr bool has = std::is_arithmetic_v<C> && Rows >= 1 && Rows <= rows && Panels == 1;

  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add(int64_t K, const C* a, int64_t lda, const C* b, int64_t ldb, int64_t, C* sums,
                                 int64_t ld_sums, bool more, const Next&) {
    multiply<Rows>(K, a, lda, b, ldb, sums, ld_sums, more);
  }

 private:
  template <int64_t Rows>
  [[gnu::noinline]] static void multiply(int64_t K, const C* __restrict a, int64_t lda, const C* __restrict b,
                                         int64_t ldb, C* __restrict sums, int64_t ld_sums, bool more) {
    using P = PanelVectors<C>;
    using U = typename P::U;
    using vector = typename P::vector;
    using unaligned = typename P::unaligned;
    constexpr int64_t V = P::V, lanes = P::lanes;
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

// One row over four panels, or up to three rows over two: enough independent accumulators to hide the latency of an FMA. The
// panels' sums lie side by side.
template <class C>
struct TileThin {
  static constexpr int64_t rows = 3;
  template <int64_t Rows, int64_t Panels>
  static constexpr bool has =
      std::is_arithmetic_v<C> && ((Rows == 1 && Panels == 4) || (Rows >= 1 && Rows <= rows && Panels == 2));

  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add(int64_t K, const C* a, int64_t lda, const C* b, int64_t, int64_t panel_stride, C* sums,
                                 int64_t, bool more, const Next&) {
    multiply<Rows, Panels>(K, a, lda, b, panel_stride, sums, more);
  }

 private:
  template <int64_t Rows, int64_t Panels>
  [[gnu::noinline]] static void multiply(int64_t K, const C* __restrict a, int64_t lda, const C* __restrict b,
                                         int64_t panel_stride, C* __restrict sums, bool more) {
    using P = PanelVectors<C>;
    using U = typename P::U;
    using vector = typename P::vector;
    using unaligned = typename P::unaligned;
    constexpr int64_t V = P::V, lanes = P::lanes, width = P::width;
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
        if constexpr (Rows > 1) keep_in_register(own[r]);
      }
      ORTISAN_UNROLL(4)
      for (int64_t p = 0; p < Panels; ++p) {
        ORTISAN_UNROLL(4)
        for (int64_t v = 0; v < V; ++v) {
          vector row = *reinterpret_cast<const unaligned*>(b + p * panel_stride + k * width + v * lanes);
          if constexpr (Rows > 1) keep_in_register(row);
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

}  // namespace ortisan::detail
