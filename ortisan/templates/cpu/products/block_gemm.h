// Products with weights of 4 or 8 bits in blocks:  C[M,N] = A[M,K] * W,  W[k][n] = (q[n][k] - zero[n][k / block]) * scale[n][k / block].
//
// The numbers q lie in panels of NR = 16 columns, four k of a column side by side, as dot products of bytes take them:
//
//   8 bits    q[p*NR + j][4*g + t] at ((p*K/4 + g)*NR + j)*4 + t, with K rounded up to whole blocks
//   4 bits    two groups share a byte: group 2*h in the low half and 2*h + 1 in the high half of ((p*K/8 + h)*NR + j)*4 + t
//
// scale and zero are packed as the panels of a float B[K / block][N]. With `rounds`, each block of a row of A is rounded to 8 bits and
// the products of a block are added up as integers; else W is written out in floats, a few panels at a time. A row of C depends
// on its row of A only, whatever M and the threads.
#pragma once

#include <cstdint>

#include "gemm.h"
#include "types.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace ortisan {

struct BlockWeights {
  int64_t N, K, block;
  const uint8_t* q;
  const float* scale;
  const float* zero;

  int64_t blocks() const { return ceil_quotient(K, block); }
  int64_t depth() const { return blocks() * block; }
};

// Bytes for A rounded to 8 bits: the numbers, then of each block what one is worth, and their sum.
constexpr int64_t rounded_bytes(int64_t M, int64_t K, int64_t block) {
  return M * ceil_quotient(K, block) * (block + 2 * int64_t(sizeof(float)));
}

namespace detail {

constexpr int64_t block_panels = 4;  // worked on at once: as many streams of memory
constexpr int64_t block_band = 64;  // rows of a task
typedef int32_t int16lanes __attribute__((vector_size(64)));
typedef float float16lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint8_t byte64 __attribute__((vector_size(64), aligned(1), may_alias));

// A row of A as blocks of 8-bit numbers. A number that is not finite makes all of its block NaN.
struct RoundedRows {
  int64_t depth, blocks;
  int8_t* numbers;
  float* worth;
  float* sum;

  RoundedRows(int64_t M, const BlockWeights& w, void* memory)
      : depth(w.depth()), blocks(w.blocks()), numbers(static_cast<int8_t*>(memory)),
        worth(reinterpret_cast<float*>(numbers + M * depth)), sum(worth + M * blocks) {}

  void round(int64_t row, const float* a, int64_t K, int64_t block) const {
    for (int64_t b = 0; b < blocks; ++b) {
      const float* from = a + b * block;
      int8_t* to = numbers + row * depth + b * block;
      const int64_t n = min_of(block, K - b * block);
      uint32_t largest = 0;
      for (int64_t k = 0; k < n; ++k) {
        const uint32_t magnitude = bit_cast<uint32_t>(from[k]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
      }
      const float most = bit_cast<float>(largest);
      const bool finite = largest < 0x7f800000u;
      const float one = finite ? most / 127.0f : bit_cast<float>(0x7fc00000u);
      // Below this the quotient would be no number, and the block is nothing beside any other.
      const float inverse = finite && most > 0x1p-120f ? 127.0f / most : 0.0f;
      int32_t total = 0;
      for (int64_t k = 0; k < n; ++k) {
        // The sum's last bits are the number rounded to nearest even.
        const uint32_t rounded = bit_cast<uint32_t>((finite ? from[k] : 0.0f) * inverse + 0x1.8p23f);
        to[k] = static_cast<int8_t>(rounded & 0xffu);
        total += to[k];
      }
      for (int64_t k = n; k < block; ++k) to[k] = 0;
      worth[row * blocks + b] = inverse == 0.0f && finite ? 0.0f : one;
      sum[row * blocks + b] = static_cast<float>(total);
    }
  }
};

// sums[j] += the products of four k of column j: bytes from 0 up times bytes of either sign.
ORTISAN_INLINE inline void add_fours(int16lanes& sums, const byte64& weights, int32_t four) {
#if defined(__AVX512VNNI__)
  sums = reinterpret_cast<int16lanes>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums),
                                                          reinterpret_cast<__m512i>(weights), _mm512_set1_epi32(four)));
#else
  int8_t a[4];
  __builtin_memcpy(a, &four, sizeof(a));
  for (int j = 0; j < 16; ++j) {
    sums[j] +=
        weights[4 * j] * a[0] + weights[4 * j + 1] * a[1] + weights[4 * j + 2] * a[2] + weights[4 * j + 3] * a[3];
  }
#endif
}

// What `Rows` rows from `row` on and `Panels` panels from q on give, in sums[Rows][Panels * NR].
template <int Bits, int Rows, int Panels>
[[gnu::noinline]] void add_block_panels(const BlockWeights& w, const RoundedRows& a, int64_t row, int64_t panel,
                                        float* sums) {
  constexpr int64_t NR = panel_width<float>;
  const int64_t groups = w.block / 4, panel_bytes = w.depth() * NR * Bits / 8;
  const uint8_t* q = w.q + panel * panel_bytes;
  float16lanes total[Rows][Panels] = {};
  for (int64_t b = 0; b < a.blocks; ++b) {
    int16lanes own[Rows][Panels] = {};
    const auto fours = [&](int r, int64_t g) ORTISAN_INLINE {
      int32_t four;
      __builtin_memcpy(&four, a.numbers + (row + r) * a.depth + b * w.block + 4 * g, sizeof(four));
      return four;
    };
    if constexpr (Bits == 8) {
      for (int64_t g = 0; g < groups; ++g) {
        for (int p = 0; p < Panels; ++p) {
          const byte64 line = *reinterpret_cast<const byte64*>(q + p * panel_bytes + (b * groups + g) * 64);
          for (int r = 0; r < Rows; ++r) add_fours(own[r][p], line, fours(r, g));
        }
      }
    } else {
      for (int64_t g = 0; g < groups; g += 2) {
        for (int p = 0; p < Panels; ++p) {
          const byte64 line = *reinterpret_cast<const byte64*>(q + p * panel_bytes + (b * groups + g) * 32);
          const byte64 low = line & 15, high = line >> 4;
          for (int r = 0; r < Rows; ++r) {
            add_fours(own[r][p], low, fours(r, g));
            add_fours(own[r][p], high, fours(r, g + 1));
          }
        }
      }
    }
    for (int p = 0; p < Panels; ++p) {
      const int64_t at = ((panel + p) * a.blocks + b) * NR;
      const float16lanes scale = *reinterpret_cast<const float16lanes*>(w.scale + at);
      const float16lanes zero = *reinterpret_cast<const float16lanes*>(w.zero + at);
      for (int r = 0; r < Rows; ++r) {
        const int64_t block = (row + r) * a.blocks + b;
        const float16lanes number = __builtin_convertvector(own[r][p], float16lanes) - zero * a.sum[block];
        total[r][p] += number * (scale * a.worth[block]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) *reinterpret_cast<float16lanes*>(sums + (r * Panels + p) * NR) = total[r][p];
  }
}

// The numbers k0 .. k1 of one panel as floats, a row of NR for each k.
template <int Bits>
void unpack_block_panel(const BlockWeights& w, int64_t panel, int64_t k0, int64_t k1, float* to) {
  constexpr int64_t NR = panel_width<float>;
  const uint8_t* q = w.q + panel * w.depth() * NR * Bits / 8;
  for (int64_t k = k0; k < k1; ++k) {
    const int64_t at = (panel * w.blocks() + k / w.block) * NR, group = k / 4;
    const uint8_t* line = q + (Bits == 8 ? group : group / 2) * 64 + k % 4;
    const int shift = Bits == 8 || group % 2 == 0 ? 0 : 4;
    for (int64_t j = 0; j < NR; ++j) {
      const int number = (line[4 * j] >> shift) & (Bits == 8 ? 255 : 15);
      to[(k - k0) * NR + j] = (static_cast<float>(number) - w.zero[at + j]) * w.scale[at + j];
    }
  }
}

// The same sums from floats.
template <int Bits, class Epilogue>
void run_unpacked(const BlockWeights& w, const float* a, int64_t first, int64_t rows, int64_t panel,
                  const Epilogue& epilogue) {
  constexpr int64_t NR = panel_width<float>;
  float sums[block_band * NR], numbers[depth_converted * NR];
  for (int64_t k0 = 0; k0 < w.K; k0 += depth_converted) {
    const int64_t k1 = min_of(k0 + depth_converted, w.K);
    unpack_block_panel<Bits>(w, panel, k0, k1, numbers);
    add_tiles<float>(rows, k1 - k0, a + first * w.K + k0, w.K, numbers, NR, sums, NR, k0 > 0);
  }
  epilogue(first, rows, panel * NR, sums, NR, min_of(NR, w.N - panel * NR));
}

template <int Bits, int Panels, class Epilogue>
void run_rounded(const BlockWeights& w, const RoundedRows& a, int64_t first, int64_t rows, int64_t panel,
                 const Epilogue& epilogue) {
  constexpr int64_t width = Panels * panel_width<float>;
  float sums[2 * width];
  const int64_t col = panel * panel_width<float>, n = min_of(width, w.N - col);
  for (int64_t r = 0; r < rows; r += 2) {
    const int64_t height = min_of(2, rows - r);
    if (height == 2)
      add_block_panels<Bits, 2, Panels>(w, a, first + r, panel, sums);
    else
      add_block_panels<Bits, 1, Panels>(w, a, first + r, panel, sums);
    epilogue(first + r, height, col, sums, width, n);
  }
}

}  // namespace detail

// `workspace` has rounded_bytes(M, K, block) where A is rounded.
template <int Bits, bool rounds, class Epilogue>
void block_gemm(Context& c, int64_t M, const float* a, const BlockWeights& w, void* workspace,
                const Epilogue& epilogue) {
  if (M <= 0 || w.N <= 0) return;
  const int64_t panels = ceil_quotient(w.N, panel_width<float>), each = rounds ? detail::block_panels : 1;
  const int64_t bands = ceil_quotient(M, detail::block_band), units = ceil_quotient(panels, each);
  const detail::RoundedRows rounded(M, w, workspace);
  if constexpr (rounds) {
    parallel_ranges(c, M, w.K, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) rounded.round(row, a + row * w.K, w.K, w.block);
    });
  }
  parallel_ranges(c, bands * units, ceil_quotient(M, bands) * w.K * each, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / units * detail::block_band, rows = min_of(detail::block_band, M - first);
      const int64_t panel = i % units * each, stop = min_of(panel + each, panels);
      if constexpr (!rounds) {
        detail::run_unpacked<Bits>(w, a, first, rows, panel, epilogue);
      } else if (stop - panel == detail::block_panels) {
        detail::run_rounded<Bits, detail::block_panels>(w, rounded, first, rows, panel, epilogue);
      } else {
        for (int64_t p = panel; p < stop; ++p) detail::run_rounded<Bits, 1>(w, rounded, first, rows, p, epilogue);
      }
    }
  });
}

}  // namespace ortisan
