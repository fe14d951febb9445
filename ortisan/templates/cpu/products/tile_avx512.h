// The register tile for AVX-512 in float, as one asm block: compilers spill registers of this loop. With AVX-512 BF16 the same tile
// takes pairs of bfloat16 for floats: a step is two k, and vdpbf16ps adds both products to a sum.
//
//   zmm0 .. zmm7    the sums of up to 8 rows in the first panel      zmm16, zmm17    the row of b in each panel
//   zmm8 .. zmm15   their sums in the second panel                   zmm18, zmm19    a broadcast, in turn
//
// Eight rows, although there are registers for more: rows that are a multiple of 4 KB apart compete for the 8 ways of one set of
// the L1 cache. Rows 0-2 of a are addressed from a0, rows 3-5 from a3, the rest from a6. Eight steps of k form one iteration,
// which also fetches one or four lines of each panel that is read next. With one panel an element of a is used once, so
// the multiplication reads it from memory by itself. Where half of the last panel is empty, its sums are half as wide: CPUs that
// multiply vectors of 512 bits in two steps save one. What only gets a bias and is clamped goes from the registers to its place.
#pragma once

#include <cstdint>

#include "clamp.h"
#include "tile_call.h"

namespace ortisan::detail {

// clang-format off
#define ORTISAN_MULTIPLY_ONE(address, turn, c0, c1) "vfmadd231ps " address "%{1to16%}, %%zmm16, %%zmm" c0 "\n\t"
#define ORTISAN_MULTIPLY_TWO(address, turn, c0, c1)     \
  "vbroadcastss " address ", %%zmm" turn "\n\t"         \
  "vfmadd231ps %%zmm16, %%zmm" turn ", %%zmm" c0 "\n\t" \
  "vfmadd231ps %%zmm17, %%zmm" turn ", %%zmm" c1 "\n\t"

#define ORTISAN_MULTIPLY_ONE_HALF(address, turn, c0, c1) \
  "vfmadd231ps " address "%{1to8%}, %%ymm16, %%ymm" c0 "\n\t"
#define ORTISAN_MULTIPLY_TWO_HALF(address, turn, c0, c1) \
  "vbroadcastss " address ", %%zmm" turn "\n\t"          \
  "vfmadd231ps %%zmm16, %%zmm" turn ", %%zmm" c0 "\n\t"  \
  "vfmadd231ps %%ymm17, %%ymm" turn ", %%ymm" c1 "\n\t"

#define ORTISAN_MULTIPLY_ONE_PAIRS(address, turn, c0, c1) \
  "vdpbf16ps " address "%{1to16%}, %%zmm16, %%zmm" c0 "\n\t"
#define ORTISAN_MULTIPLY_TWO_PAIRS(address, turn, c0, c1) \
  "vbroadcastss " address ", %%zmm" turn "\n\t"           \
  "vdpbf16ps %%zmm16, %%zmm" turn ", %%zmm" c0 "\n\t"     \
  "vdpbf16ps %%zmm17, %%zmm" turn ", %%zmm" c1 "\n\t"

#define ORTISAN_ROWS_1(row, k) row(k "(%[a0])", "18", "0", "8")
#define ORTISAN_ROWS_2(row, k) ORTISAN_ROWS_1(row, k) row(k "(%[a0],%[lda])", "19", "1", "9")
#define ORTISAN_ROWS_3(row, k) ORTISAN_ROWS_2(row, k) row(k "(%[a0],%[lda],2)", "18", "2", "10")
#define ORTISAN_ROWS_4(row, k) ORTISAN_ROWS_3(row, k) row(k "(%[a3])", "19", "3", "11")
#define ORTISAN_ROWS_5(row, k) ORTISAN_ROWS_4(row, k) row(k "(%[a3],%[lda])", "18", "4", "12")
#define ORTISAN_ROWS_6(row, k) ORTISAN_ROWS_5(row, k) row(k "(%[a3],%[lda],2)", "19", "5", "13")
#define ORTISAN_ROWS_7(row, k) ORTISAN_ROWS_6(row, k) row(k "(%[a6])", "18", "6", "14")
#define ORTISAN_ROWS_8(row, k) ORTISAN_ROWS_7(row, k) row(k "(%[a6],%[lda])", "19", "7", "15")

// What else is done with the rows: their sums are zeroed, loaded and stored.
#define ORTISAN_ZERO_ONE(address, turn, c0, c1) "vpxord %%zmm" c0 ", %%zmm" c0 ", %%zmm" c0 "\n\tadd %[ldc], %[c]\n\t"
#define ORTISAN_ZERO_TWO(address, turn, c0, c1) \
  "vpxord %%zmm" c1 ", %%zmm" c1 ", %%zmm" c1 "\n\t" ORTISAN_ZERO_ONE(, , c0, )
#define ORTISAN_LOAD_ONE(address, turn, c0, c1) "vmovups (%[c]), %%zmm" c0 "\n\tadd %[ldc], %[c]\n\t"
#define ORTISAN_LOAD_TWO(address, turn, c0, c1) "vmovups 64(%[c]), %%zmm" c1 "\n\t" ORTISAN_LOAD_ONE(, , c0, )
#define ORTISAN_STORE_ONE(address, turn, c0, c1) "vmovups %%zmm" c0 ", (%[c])\n\tadd %[ldc], %[c]\n\t"
#define ORTISAN_STORE_TWO(address, turn, c0, c1) "vmovups %%zmm" c1 ", 64(%[c])\n\t" ORTISAN_STORE_ONE(, , c0, )

// What is written with a clamp: the bias is in zmm16 and zmm17, the bounds are in zmm18 and zmm19. The order keeps NaN.
#define ORTISAN_CLAMP(bias, c0)                                                         \
  "vaddps %%zmm" bias ", %%zmm" c0 ", %%zmm" c0 "\n\tvmaxps %%zmm" c0 ", %%zmm18, %%zmm" c0 \
  "\n\tvminps %%zmm" c0 ", %%zmm19, %%zmm" c0 "\n\t"
#define ORTISAN_CLAMP_ONE(address, turn, c0, c1) ORTISAN_CLAMP("16", c0) ORTISAN_STORE_ONE(, , c0, )
#define ORTISAN_CLAMP_TWO(address, turn, c0, c1) ORTISAN_CLAMP("16", c0) ORTISAN_CLAMP("17", c1) ORTISAN_STORE_TWO(, , c0, c1)
#define ORTISAN_BOUNDS_ONE                                       \
  "mov %[bias], %[next]\n\tvmovups (%[next]), %%zmm16\n\t"      \
  "vbroadcastss %[low], %%zmm18\n\tvbroadcastss %[high], %%zmm19\n\t"
#define ORTISAN_BOUNDS_TWO ORTISAN_BOUNDS_ONE "vmovups 64(%[next]), %%zmm17\n\t"

#define ORTISAN_B_ONE "vmovups (%[b]), %%zmm16\n\tadd %[ldb], %[b]\n\t"
#define ORTISAN_B_TWO "vmovups (%[b],%[second]), %%zmm17\n\t" ORTISAN_B_ONE
#define ORTISAN_FETCH_ONE "prefetcht0 (%[next])\n\tadd %[stride], %[next]\n\t"
#define ORTISAN_FETCH_TWO "prefetcht0 (%[next],%[second])\n\t" ORTISAN_FETCH_ONE
#define ORTISAN_STEP(rows, panels, half, k) ORTISAN_B_##panels ORTISAN_ROWS_##rows(ORTISAN_MULTIPLY_##panels##half, k)
#define ORTISAN_BLOCK(rows, panels, half, few, many)                                                        \
  few ORTISAN_STEP(rows, panels, half, "0") ORTISAN_STEP(rows, panels, half, "4")                           \
  many ORTISAN_STEP(rows, panels, half, "8") ORTISAN_STEP(rows, panels, half, "12")                         \
  many ORTISAN_STEP(rows, panels, half, "16") ORTISAN_STEP(rows, panels, half, "20")                        \
  many ORTISAN_STEP(rows, panels, half, "24") ORTISAN_STEP(rows, panels, half, "28")
#define ORTISAN_ADVANCE(bytes) "add $" bytes ", %[a0]\n\tadd $" bytes ", %[a3]\n\tadd $" bytes ", %[a6]\n\t"

#define ORTISAN_TILE_ASM(rows, panels, half, finish, few, many) \
  asm volatile("mov %[sums], %[c]\n\tcmpq $0, %[more]\n\tje 5f\n\t"                                           \
      ORTISAN_ROWS_##rows(ORTISAN_LOAD_##panels, "") "jmp 6f\n"                                               \
      "5:\n\t" ORTISAN_ROWS_##rows(ORTISAN_ZERO_##panels, "") "\n6:\n\t"                                      \
      "test %[blocks], %[blocks]\n\tjz 2f\n\t.p2align 5\n"                                                    \
      "1:\n\t" ORTISAN_BLOCK(rows, panels, half, few, many) ORTISAN_ADVANCE("32") "dec %[blocks]\n\tjnz 1b\n" \
      "2:\n\ttest %[rest], %[rest]\n\tjz 4f\n"                                                                \
      "3:\n\t" ORTISAN_STEP(rows, panels, half, "0") ORTISAN_ADVANCE("4") "dec %[rest]\n\tjnz 3b\n"           \
      "4:\n\tmov %[sums], %[c]\n\t" finish "vzeroupper\n\t" \
      : [a0] "+r"(a0), [a3] "+r"(a3), [a6] "+r"(a6), [b] "+r"(b), [c] "=&r"(c), [next] "+r"(next),            \
        [blocks] "+r"(blocks), [rest] "+r"(rest)                                                              \
      : [lda] "r"(row), [ldb] "r"(ldb_bytes), [ldc] "r"(ldc_bytes), [second] "r"(second), [stride] "r"(stride), \
        [more] "m"(more), [sums] "m"(sums), [bias] "m"(clamp.bias), [low] "m"(clamp.low), [high] "m"(clamp.high)                                                                    \
      : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",       \
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19")

#define ORTISAN_TILE_STORING(rows, panels, half, few, many) \
  ORTISAN_TILE_ASM(rows, panels, half, ORTISAN_ROWS_##rows(ORTISAN_STORE_##panels, ""), few, many)
#define ORTISAN_TILE_CLAMPING(rows, panels, few, many) \
  ORTISAN_TILE_ASM(rows, panels, , ORTISAN_BOUNDS_##panels ORTISAN_ROWS_##rows(ORTISAN_CLAMP_##panels, ""), few, many)
#define ORTISAN_TILE_PAIRS(rows, panels)                                                                 \
  if (fetches == 0) ORTISAN_TILE_STORING(rows, panels, _PAIRS, "", "");                                  \
  else if (fetches == 1) ORTISAN_TILE_STORING(rows, panels, _PAIRS, ORTISAN_FETCH_##panels, "");         \
  else ORTISAN_TILE_STORING(rows, panels, _PAIRS, ORTISAN_FETCH_##panels, ORTISAN_FETCH_##panels);
#define ORTISAN_TILE_FETCHING(rows, panels)                                                              \
  if constexpr (Kind == Kinds::half) {                                                                   \
    if (fetches == 0) ORTISAN_TILE_STORING(rows, panels, _HALF, "", "");                                 \
    else ORTISAN_TILE_STORING(rows, panels, _HALF, ORTISAN_FETCH_##panels, "");                          \
  } else if constexpr (Kind == Kinds::clamped) {                                                         \
    if (fetches == 0) ORTISAN_TILE_CLAMPING(rows, panels, "", "");                                       \
    else ORTISAN_TILE_CLAMPING(rows, panels, ORTISAN_FETCH_##panels, "");                                \
  } else {                                                                                               \
    if (fetches == 0) ORTISAN_TILE_STORING(rows, panels, , "", "");                                      \
    else if (fetches == 1) ORTISAN_TILE_STORING(rows, panels, , ORTISAN_FETCH_##panels, "");             \
    else ORTISAN_TILE_STORING(rows, panels, , ORTISAN_FETCH_##panels, ORTISAN_FETCH_##panels);           \
  }

#define ORTISAN_TILE(tile, rows)                      \
  if constexpr (Rows == rows && Panels == 1) {        \
    tile(rows, ONE)                                   \
  } else if constexpr (Rows == rows && Panels == 2) { \
    tile(rows, TWO)                                   \
  }
#define ORTISAN_TILES(tile)                                                                                \
  ORTISAN_TILE(tile, 1) ORTISAN_TILE(tile, 2) ORTISAN_TILE(tile, 3) ORTISAN_TILE(tile, 4)                   \
  ORTISAN_TILE(tile, 5) ORTISAN_TILE(tile, 6) ORTISAN_TILE(tile, 7) ORTISAN_TILE(tile, 8)
// clang-format on

struct TileAvx512 {
  static constexpr int64_t rows = 8, panels = 2;
  static constexpr bool prefetches = true, halves = true, clamps = true;
  template <int64_t Rows, int64_t Panels>
  static constexpr bool has = Rows >= 1 && Rows <= rows && (Panels == 1 || Panels == 2);

  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb,
                                 int64_t panel_stride, float* sums, int64_t ld_sums, bool more, const Next& next) {
    multiply<Rows, Panels, Kinds::plain>(K, a, lda, b, ldb, sums, ld_sums, more, panel_stride, next, {});
  }

  // Where the last panel has half of its columns at most.
  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add_half(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb,
                                      int64_t panel_stride, float* sums, int64_t ld_sums, bool more, const Next& next) {
    multiply<Rows, Panels, Kinds::half>(K, a, lda, b, ldb, sums, ld_sums, more, panel_stride, next, {});
  }

  // Without `more`; writes what the clamp makes of the sums.
  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add_clamped(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb,
                                         int64_t panel_stride, float* out, int64_t ld_out, const Next& next,
                                         const Clamp<float>& clamp) {
    multiply<Rows, Panels, Kinds::clamped>(K, a, lda, b, ldb, out, ld_out, false, panel_stride, next, clamp);
  }

 private:
  enum class Kinds { plain, half, clamped };

  template <int64_t Rows, int64_t Panels, Kinds Kind>
  [[gnu::noinline]] static void multiply(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb,
                                         float* sums, int64_t ld_sums, int64_t more, int64_t panel_stride,
                                         const Next& fetched, const Clamp<float>& clamp) {
    const char* next = fetched.from;
    const int64_t stride = fetched.stride, fetches = fetched.fetches;
    const int64_t row = lda * 4, ldb_bytes = ldb * 4, ldc_bytes = ld_sums * 4, second = panel_stride * 4;
    const char* a0 = reinterpret_cast<const char*>(a);
    const char *a3 = a0 + 3 * row, *a6 = a0 + 6 * row;
    const float* c;
    int64_t blocks = K / 8, rest = K % 8;
    ORTISAN_TILES(ORTISAN_TILE_FETCHING)
  }
};

#if defined(__AVX512BF16__)
// A step is a pair of k. The last k of an odd number is multiplied as a pair with zero, from copies: what follows a row of a may be
// no number.
struct TileAvx512Bf16 {
  static constexpr int64_t rows = 8, panels = 2;
  static constexpr bool prefetches = true, halves = false, clamps = false;
  template <int64_t Rows, int64_t Panels>
  static constexpr bool has = TileAvx512::has<Rows, Panels>;

  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add(int64_t K, const bfloat16* a, int64_t lda, const bfloat16* b, int64_t ldb,
                                 int64_t panel_stride, float* sums, int64_t ld_sums, bool more, const Next& next) {
    const int64_t row = lda * 2, ldb_bytes = ldb * 4, ldc_bytes = ld_sums * 4, second = panel_stride * 2;
    if (K > 1 || !more) {
      multiply<Rows, Panels>(K / 2, a, row, b, ldb_bytes, sums, ldc_bytes, more, second, next.from, next.stride,
                             next.fetches);
    }
    if (K % 2 == 0) return;
    uint32_t last[Rows];
    for (int64_t r = 0; r < Rows; ++r) last[r] = a[r * lda + K - 1].bits;
    multiply<Rows, Panels>(1, last, 4, b + (K - 1) * ldb, ldb_bytes, sums, ldc_bytes, true, second, nullptr, 0, 0);
  }

 private:
  template <int64_t Rows, int64_t Panels>
  [[gnu::noinline]] static void multiply(int64_t pairs, const void* a, int64_t row, const bfloat16* b,
                                         int64_t ldb_bytes, float* sums, int64_t ldc_bytes, int64_t more,
                                         int64_t second, const char* next, int64_t stride, int64_t fetches) {
    const char* a0 = static_cast<const char*>(a);
    const char *a3 = a0 + 3 * row, *a6 = a0 + 6 * row;
    const float* c;
    const Clamp<float> clamp{};
    int64_t blocks = pairs / 8, rest = pairs % 8;
    ORTISAN_TILES(ORTISAN_TILE_PAIRS)
  }
};
#endif

#undef ORTISAN_MULTIPLY_ONE
#undef ORTISAN_MULTIPLY_TWO
#undef ORTISAN_MULTIPLY_ONE_HALF
#undef ORTISAN_MULTIPLY_TWO_HALF
#undef ORTISAN_MULTIPLY_ONE_PAIRS
#undef ORTISAN_MULTIPLY_TWO_PAIRS
#undef ORTISAN_ROWS_1
#undef ORTISAN_ROWS_2
#undef ORTISAN_ROWS_3
#undef ORTISAN_ROWS_4
#undef ORTISAN_ROWS_5
#undef ORTISAN_ROWS_6
#undef ORTISAN_ROWS_7
#undef ORTISAN_ROWS_8
#undef ORTISAN_ZERO_ONE
#undef ORTISAN_ZERO_TWO
#undef ORTISAN_LOAD_ONE
#undef ORTISAN_LOAD_TWO
#undef ORTISAN_STORE_ONE
#undef ORTISAN_STORE_TWO
#undef ORTISAN_CLAMP
#undef ORTISAN_CLAMP_ONE
#undef ORTISAN_CLAMP_TWO
#undef ORTISAN_BOUNDS_ONE
#undef ORTISAN_BOUNDS_TWO
#undef ORTISAN_B_ONE
#undef ORTISAN_B_TWO
#undef ORTISAN_FETCH_ONE
#undef ORTISAN_FETCH_TWO
#undef ORTISAN_STEP
#undef ORTISAN_BLOCK
#undef ORTISAN_ADVANCE
#undef ORTISAN_TILE_ASM
#undef ORTISAN_TILE_STORING
#undef ORTISAN_TILE_CLAMPING
#undef ORTISAN_TILE_PAIRS
#undef ORTISAN_TILE_FETCHING
#undef ORTISAN_TILES
#undef ORTISAN_TILE

}  // namespace ortisan::detail
