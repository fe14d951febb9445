// The register tile for AVX2 + FMA in float, as one asm block: GCC does not keep the loop's 16 registers by itself.
//
//   ymm0 .. ymm11   the sums: 2 vectors for each of up to 6 rows
//   ymm12, ymm13    the row of b          ymm14, ymm15    a broadcast, in turn
//
// Rows 0-2 of a are addressed from a0, rows 3-5 from a3 = a0 + 3 lda. Eight steps of k form one iteration, which also
// fetches one or four cache lines of what is read next, spread evenly so that they arrive while there is arithmetic to do.
#pragma once

#include <cstdint>

#include "tile_call.h"

namespace ortisan::detail {

// clang-format off
// The rows of a tile: where each reads a, the register of its broadcast, and the registers of its sums.
#define ORTISAN_ROWS_1(what, k) what(k "(%[a0])", "%%ymm14", "%%ymm0", "%%ymm1")
#define ORTISAN_ROWS_2(what, k) ORTISAN_ROWS_1(what, k) what(k "(%[a0],%[lda])", "%%ymm15", "%%ymm2", "%%ymm3")
#define ORTISAN_ROWS_3(what, k) ORTISAN_ROWS_2(what, k) what(k "(%[a0],%[lda],2)", "%%ymm14", "%%ymm4", "%%ymm5")
#define ORTISAN_ROWS_4(what, k) ORTISAN_ROWS_3(what, k) what(k "(%[a3])", "%%ymm15", "%%ymm6", "%%ymm7")
#define ORTISAN_ROWS_5(what, k) ORTISAN_ROWS_4(what, k) what(k "(%[a3],%[lda])", "%%ymm14", "%%ymm8", "%%ymm9")
#define ORTISAN_ROWS_6(what, k) ORTISAN_ROWS_5(what, k) what(k "(%[a3],%[lda],2)", "%%ymm15", "%%ymm10", "%%ymm11")

// What is done with them.
#define ORTISAN_MULTIPLY(address, a, c0, c1)     \
  "vbroadcastss " address ", " a "\n\t"          \
  "vfmadd231ps %%ymm12, " a ", " c0 "\n\t"       \
  "vfmadd231ps %%ymm13, " a ", " c1 "\n\t"
#define ORTISAN_LOAD(address, a, c0, c1) "vmovups (%[c]), " c0 "\n\tvmovups 32(%[c]), " c1 "\n\tadd %[ldc], %[c]\n\t"
#define ORTISAN_ZERO(address, a, c0, c1) \
  "vxorps " c0 ", " c0 ", " c0 "\n\tvxorps " c1 ", " c1 ", " c1 "\n\tadd %[ldc], %[c]\n\t"

// Sums are stored from the last row up: c is behind it.
#define ORTISAN_STORE(c0, c1) "sub %[ldc], %[c]\n\tvmovups " c0 ", (%[c])\n\tvmovups " c1 ", 32(%[c])\n\t"
#define ORTISAN_STORE_1 ORTISAN_STORE("%%ymm0", "%%ymm1")
#define ORTISAN_STORE_2 ORTISAN_STORE("%%ymm2", "%%ymm3") ORTISAN_STORE_1
#define ORTISAN_STORE_3 ORTISAN_STORE("%%ymm4", "%%ymm5") ORTISAN_STORE_2
#define ORTISAN_STORE_4 ORTISAN_STORE("%%ymm6", "%%ymm7") ORTISAN_STORE_3
#define ORTISAN_STORE_5 ORTISAN_STORE("%%ymm8", "%%ymm9") ORTISAN_STORE_4
#define ORTISAN_STORE_6 ORTISAN_STORE("%%ymm10", "%%ymm11") ORTISAN_STORE_5

#define ORTISAN_STEP(rows, k)                                                    \
  "vmovups (%[b]), %%ymm12\n\tvmovups 32(%[b]), %%ymm13\n\tadd %[ldb], %[b]\n\t" \
  ORTISAN_ROWS_##rows(ORTISAN_MULTIPLY, k)
#define ORTISAN_FETCH "prefetcht0 (%[next])\n\tadd %[stride], %[next]\n\t"
#define ORTISAN_BLOCK(rows, few, many)                                                                     \
  few ORTISAN_STEP(rows, "0") ORTISAN_STEP(rows, "4") many ORTISAN_STEP(rows, "8") ORTISAN_STEP(rows, "12") \
  many ORTISAN_STEP(rows, "16") ORTISAN_STEP(rows, "20") many ORTISAN_STEP(rows, "24") ORTISAN_STEP(rows, "28")

#define ORTISAN_TILE_ASM(rows, few, many)                                                                  \
  asm volatile("test %[more], %[more]\n\tjz 5f\n\t" ORTISAN_ROWS_##rows(ORTISAN_LOAD, "") "jmp 6f\n"           \
      "5:\n\t" ORTISAN_ROWS_##rows(ORTISAN_ZERO, "") "\n6:\n\t"                                               \
      "test %[blocks], %[blocks]\n\tjz 2f\n\t.p2align 5\n"                                                 \
      "1:\n\t" ORTISAN_BLOCK(rows, few, many)                                                              \
      "add $32, %[a0]\n\tadd $32, %[a3]\n\tdec %[blocks]\n\tjnz 1b\n"                                      \
      "2:\n\ttest %[rest], %[rest]\n\tjz 4f\n"                                                             \
      "3:\n\t" ORTISAN_STEP(rows, "0") "add $4, %[a0]\n\tadd $4, %[a3]\n\tdec %[rest]\n\tjnz 3b\n"         \
      "4:\n\t" ORTISAN_STORE_##rows "vzeroupper\n\t"                                                       \
      : [a0] "+r"(a0), [a3] "+r"(a3), [b] "+r"(b), [c] "+r"(sums), [next] "+r"(next), [blocks] "+r"(blocks), \
        [rest] "+r"(rest)                                                                                  \
      : [lda] "r"(row), [ldb] "r"(ldb_bytes), [ldc] "r"(ldc_bytes), [stride] "r"(stride), [more] "r"(more) \
      : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9",     \
        "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15")

#define ORTISAN_TILE(rows)                                                              \
  if constexpr (Rows == rows) {                                                         \
    if (fetches == 0) ORTISAN_TILE_ASM(rows, "", "");                                   \
    else if (fetches == 1) ORTISAN_TILE_ASM(rows, ORTISAN_FETCH, "");                   \
    else ORTISAN_TILE_ASM(rows, ORTISAN_FETCH, ORTISAN_FETCH);                          \
  }
// clang-format on

struct TileAvx2 {
  static constexpr int64_t rows = 6, panels = 1;
  static constexpr bool prefetches = true, halves = false, clamps = false;
  template <int64_t Rows, int64_t Panels>
  static constexpr bool has = Rows >= 1 && Rows <= rows && Panels == 1;

  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t,
                                 float* sums, int64_t ld_sums, bool more, const Next& next) {
    multiply<Rows>(K, a, lda, b, ldb, sums, ld_sums, more, next.from, next.stride, next.fetches);
  }

 private:
  template <int64_t Rows>
  [[gnu::noinline]] static void multiply(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb,
                                         float* sums, int64_t ld_sums, int64_t more, const char* next, int64_t stride,
                                         int64_t fetches) {
    const int64_t row = lda * 4, ldb_bytes = ldb * 4, ldc_bytes = ld_sums * 4;
    const char* a0 = reinterpret_cast<const char*>(a);
    const char* a3 = a0 + 3 * row;
    int64_t blocks = K / 8, rest = K % 8;
    ORTISAN_TILE(1)
    ORTISAN_TILE(2)
    ORTISAN_TILE(3)
    ORTISAN_TILE(4)
    ORTISAN_TILE(5)
    ORTISAN_TILE(6)
  }
};

#undef ORTISAN_ROWS_1
#undef ORTISAN_ROWS_2
#undef ORTISAN_ROWS_3
#undef ORTISAN_ROWS_4
#undef ORTISAN_ROWS_5
#undef ORTISAN_ROWS_6
#undef ORTISAN_MULTIPLY
#undef ORTISAN_LOAD
#undef ORTISAN_ZERO
#undef ORTISAN_STORE
#undef ORTISAN_STORE_1
#undef ORTISAN_STORE_2
#undef ORTISAN_STORE_3
#undef ORTISAN_STORE_4
#undef ORTISAN_STORE_5
#undef ORTISAN_STORE_6
#undef ORTISAN_STEP
#undef ORTISAN_FETCH
#undef ORTISAN_BLOCK
#undef ORTISAN_TILE_ASM
#undef ORTISAN_TILE

}  // namespace ortisan::detail
