// Tiles of few rows over bfloat16: both factors in pairs of k, where the CPU multiplies them, and the panels alone.
#pragma once

#include <cstdint>

#include "lanes.h"
#include "tile_call.h"
#include "tile_plain.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace ortisan::detail {

// Whether products of bfloat16 are one instruction, so that tiles take them as they are.
#if defined(__AVX512BF16__) && !defined(ORTISAN_PLAIN_TILES)
constexpr bool multiplies_bfloat16 = true;
#else
constexpr bool multiplies_bfloat16 = false;
#endif

#if defined(__AVX512BF16__)
// What TileThin is to float. An odd K ends with a pair whose second factor is zero.
template <>
struct TileThin<bfloat16> {
  static constexpr int64_t rows = 3;
  template <int64_t Rows, int64_t Panels>
  static constexpr bool has = TileThin<float>::has<Rows, Panels>;

  template <int64_t Rows, int64_t Panels>
  [[gnu::noinline]] static void add(int64_t K, const bfloat16* a, int64_t lda, const bfloat16* b, int64_t,
                                    int64_t panel_stride, float* sums, int64_t, bool more, const Next&) {
    constexpr int64_t NR = panel_width<bfloat16>;
    __m512 s[Rows][Panels];
    for (int64_t r = 0; r < Rows; ++r) {
      for (int64_t p = 0; p < Panels; ++p) {
        s[r][p] = more ? _mm512_loadu_ps(sums + (r * Panels + p) * NR) : _mm512_setzero_ps();
      }
    }
    const auto step = [&](int64_t k, const auto& pair_of) ORTISAN_INLINE {
      for (int64_t p = 0; p < Panels; ++p) {
        const __m512i line = _mm512_loadu_si512(b + p * panel_stride + k * NR);
        for (int64_t r = 0; r < Rows; ++r) {
          const __m512i own = _mm512_set1_epi32(pair_of(r, k));
          s[r][p] = _mm512_dpbf16_ps(s[r][p], reinterpret_cast<__m512bh>(own), reinterpret_cast<__m512bh>(line));
        }
      }
    };
    for (int64_t k = 0; k + 1 < K; k += 2) {
      step(k, [=](int64_t r, int64_t at) ORTISAN_INLINE {
        int32_t pair;
        __builtin_memcpy(&pair, a + r * lda + at, sizeof(pair));
        return pair;
      });
    }
    if (K % 2 != 0) step(K - 1, [=](int64_t r, int64_t at) ORTISAN_INLINE { return int32_t{a[r * lda + at].bits}; });
    for (int64_t r = 0; r < Rows; ++r) {
      for (int64_t p = 0; p < Panels; ++p) _mm512_storeu_ps(sums + (r * Panels + p) * NR, s[r][p]);
    }
  }
};
#endif

// One row of float over four panels of bfloat16: as much arithmetic as with panels of float, and half of the memory.
struct TileWidening {
  template <int64_t Panels>
  [[gnu::noinline]] static void add(int64_t K, const float* a, const bfloat16* b, int64_t panel_stride, float* sums,
                                    bool more) {
    constexpr int64_t NR = panel_width<bfloat16>, lanes = lane_count<float>, V = NR / lanes;
    lanes_t<float> s[Panels * V];
    ORTISAN_UNROLL(16)
    for (int64_t v = 0; v < Panels * V; ++v) {
      s[v] = more ? read_unaligned<lanes_t<float>>(sums + v * lanes) : lanes_t<float>{};
    }
    const auto step = [&](int64_t k, float even, float odd) ORTISAN_INLINE {
      ORTISAN_UNROLL(4)
      for (int64_t p = 0; p < Panels; ++p) {
        ORTISAN_UNROLL(4)
        for (int64_t v = 0; v < V; ++v) {
          const word_lanes pair = read_unaligned<word_lanes>(b + p * panel_stride + k * NR + 2 * v * lanes);
          s[p * V + v] += even * same_bits<lanes_t<float>>(pair << 16);
          s[p * V + v] += odd * same_bits<lanes_t<float>>(pair & 0xffff0000u);
        }
      }
    };
    for (int64_t k = 0; k + 1 < K; k += 2) step(k, a[k], a[k + 1]);
    if (K % 2 != 0) step(K - 1, a[K - 1], 0.0f);
    ORTISAN_UNROLL(16)
    for (int64_t v = 0; v < Panels * V; ++v) __builtin_memcpy(sums + v * lanes, &s[v], sizeof(s[v]));
  }
};

}  // namespace ortisan::detail
