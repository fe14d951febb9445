// How B[K,N] lies in panels of NR = panel_width<W> columns, and how panels are packed and read.
//
// Panel p of float holds B[k][p*NR + j] at (p*K + k)*NR + j, zero-padded in the last panel. A panel of bfloat16 holds pairs of k,
// as vdpbf16ps takes them: B[k][p*NR + j] at (p*depth + k - k%2)*NR + 2*j + k%2, where depth is K rounded up to an even number,
// and an odd K ends in zeros.
#pragma once

#include <cstdint>

#include "lanes.h"
#include "tile.h"
#include "transpose.h"

namespace ortisan {

// Rows of a packed panel.
template <class W>
constexpr int64_t panel_depth(int64_t K) {
  return std::is_same_v<W, bfloat16> ? K + K % 2 : K;
}

// Elements of B[K,N] when packed.
template <class W>
constexpr int64_t packed_elements(int64_t K, int64_t N) {
  return (N + panel_width<W> - 1) / panel_width<W> * panel_width<W> * panel_depth<W>(K);
}

namespace detail {

typedef uint32_t word_of_two __attribute__((may_alias, aligned(2)));

// A panel of pairs of k. Pairs that lie side by side, and rows of k that do, are moved as words.
inline void pack_pairs(int64_t K, int64_t width, const bfloat16* b, int64_t stride_k, int64_t stride_n,
                       bfloat16* panel) {
  constexpr int64_t NR = panel_width<bfloat16>;
  word_of_two* words = reinterpret_cast<word_of_two*>(panel);
  for (int64_t k = 0; k < K; k += 2, words += NR) {
    const bfloat16 *first = b + k * stride_k, *second = first + stride_k;
    const bool pair = k + 1 < K;
    if (width == NR && stride_n == 1 && pair) {
      for (int64_t j = 0; j < NR; ++j) words[j] = first[j].bits | uint32_t{second[j].bits} << 16;
    } else if (stride_k == 1 && pair) {
      for (int64_t j = 0; j < width; ++j) words[j] = *reinterpret_cast<const word_of_two*>(first + j * stride_n);
      for (int64_t j = width; j < NR; ++j) words[j] = 0;
    } else {
      for (int64_t j = 0; j < NR; ++j) {
        const uint32_t low = j < width ? first[j * stride_n].bits : 0;
        const uint32_t high = j < width && pair ? second[j * stride_n].bits : 0;
        words[j] = low | high << 16;
      }
    }
  }
}

template <class W>
void pack_panel(int64_t K, int64_t width, const W* b, int64_t stride_k, int64_t stride_n, W* panel) {
  constexpr int64_t NR = panel_width<W>;
  if constexpr (std::is_same_v<W, bfloat16>) return pack_pairs(K, width, b, stride_k, stride_n, panel);
  if (width == NR && stride_n == 1) {
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t j = 0; j < NR; ++j) panel[k * NR + j] = b[k * stride_k + j];
    }
    return;
  }
  if (width == NR && stride_k == 1) return transpose_into(K, NR, b, stride_n, panel, NR);
  // By blocks of k, so that columns that are contiguous in k are read line by line.
  for (int64_t k0 = 0; k0 < K; k0 += 32) {
    const int64_t k1 = min_of(k0 + 32, K);
    for (int64_t j = 0; j < NR; ++j) {
      for (int64_t k = k0; k < k1; ++k) panel[k * NR + j] = j < width ? b[k * stride_k + j * stride_n] : W{};
    }
  }
}

// The same numbers in the type that is computed in, a row of NR for each k in [k0, k1); k0 is even.
template <class W>
void unpack_panel(const W* panel, int64_t k0, int64_t k1, compute_t<W>* to) {
  constexpr int64_t NR = panel_width<W>;
  const W* from = panel + k0 * NR;
  if constexpr (std::is_same_v<W, bfloat16>) {
    for (int64_t k = 0; k < k1 - k0; ++k) {
      const bfloat16* line = from + (k - k % 2) * NR + k % 2;
      for (int64_t j = 0; j < NR; ++j) to[k * NR + j] = load(line[2 * j]);
    }
  } else {
    for (int64_t i = 0; i < (k1 - k0) * NR; ++i) to[i] = load(from[i]);
  }
}

}  // namespace detail
}  // namespace ortisan
