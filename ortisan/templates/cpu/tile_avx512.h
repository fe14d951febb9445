// The register tile for AVX-512 in float, as one asm block: compilers spill registers of this loop.
//
//   zmm0 .. zmm11    the sums of up to 12 rows in the first panel      zmm24, zmm25    the row of b in each panel
//   zmm12 .. zmm23   their sums in the second panel                    zmm26, zmm27    a broadcast, in turn
//
// Rows 0-2 of a are addressed from a0, rows 3-5 from a3, and so on. Eight steps of k form one iteration. With one panel
// an element of a is used once, so the multiplication reads it from memory by itself.
#pragma once

#include <cstdint>

namespace ortisan::detail {

#define ORTISAN_MULTIPLY_ONE(address, turn, c0, c1) "vfmadd231ps " address "%{1to16%}, %%zmm24, %%zmm" c0 "\n\t"
#define ORTISAN_MULTIPLY_TWO(address, turn, c0, c1)     \
  "vbroadcastss " address ", %%zmm" turn "\n\t"         \
  "vfmadd231ps %%zmm24, %%zmm" turn ", %%zmm" c0 "\n\t" \
  "vfmadd231ps %%zmm25, %%zmm" turn ", %%zmm" c1 "\n\t"

#define ORTISAN_ROWS_1(row, k) row(k "(%[a0])", "26", "0", "12")
#define ORTISAN_ROWS_2(row, k) ORTISAN_ROWS_1(row, k) row(k "(%[a0],%[lda])", "27", "1", "13")
#define ORTISAN_ROWS_3(row, k) ORTISAN_ROWS_2(row, k) row(k "(%[a0],%[lda],2)", "26", "2", "14")
#define ORTISAN_ROWS_4(row, k) ORTISAN_ROWS_3(row, k) row(k "(%[a3])", "27", "3", "15")
#define ORTISAN_ROWS_5(row, k) ORTISAN_ROWS_4(row, k) row(k "(%[a3],%[lda])", "26", "4", "16")
#define ORTISAN_ROWS_6(row, k) ORTISAN_ROWS_5(row, k) row(k "(%[a3],%[lda],2)", "27", "5", "17")
#define ORTISAN_ROWS_7(row, k) ORTISAN_ROWS_6(row, k) row(k "(%[a6])", "26", "6", "18")
#define ORTISAN_ROWS_8(row, k) ORTISAN_ROWS_7(row, k) row(k "(%[a6],%[lda])", "27", "7", "19")
#define ORTISAN_ROWS_9(row, k) ORTISAN_ROWS_8(row, k) row(k "(%[a6],%[lda],2)", "26", "8", "20")
#define ORTISAN_ROWS_10(row, k) ORTISAN_ROWS_9(row, k) row(k "(%[a9])", "27", "9", "21")
#define ORTISAN_ROWS_11(row, k) ORTISAN_ROWS_10(row, k) row(k "(%[a9],%[lda])", "26", "10", "22")
#define ORTISAN_ROWS_12(row, k) ORTISAN_ROWS_11(row, k) row(k "(%[a9],%[lda],2)", "27", "11", "23")

// What else is done with the rows: their sums are zeroed, loaded and stored.
#define ORTISAN_ZERO_ONE(address, turn, c0, c1) "vpxord %%zmm" c0 ", %%zmm" c0 ", %%zmm" c0 "\n\t"
#define ORTISAN_ZERO_TWO(address, turn, c0, c1) ORTISAN_ZERO_ONE(, , c0, ) ORTISAN_ZERO_ONE(, , c1, )
#define ORTISAN_LOAD_ONE(address, turn, c0, c1) "vmovups (%[from]), %%zmm" c0 "\n\tadd %[ldc], %[from]\n\t"
#define ORTISAN_LOAD_TWO(address, turn, c0, c1) "vmovups 64(%[from]), %%zmm" c1 "\n\t" ORTISAN_LOAD_ONE(, , c0, )
#define ORTISAN_STORE_ONE(address, turn, c0, c1) "vmovups %%zmm" c0 ", (%[to])\n\tadd %[ldc], %[to]\n\t"
#define ORTISAN_STORE_TWO(address, turn, c0, c1) "vmovups %%zmm" c1 ", 64(%[to])\n\t" ORTISAN_STORE_ONE(, , c0, )

#define ORTISAN_B_ONE "vmovups (%[b]), %%zmm24\n\tadd %[ldb], %[b]\n\t"
#define ORTISAN_B_TWO "vmovups (%[b],%[second]), %%zmm25\n\t" ORTISAN_B_ONE
#define ORTISAN_STEP(rows, panels, k) ORTISAN_B_##panels ORTISAN_ROWS_##rows(ORTISAN_MULTIPLY_##panels, k)
#define ORTISAN_BLOCK(rows, panels)                                                                  \
  ORTISAN_STEP(rows, panels, "0") ORTISAN_STEP(rows, panels, "4") ORTISAN_STEP(rows, panels, "8")    \
  ORTISAN_STEP(rows, panels, "12") ORTISAN_STEP(rows, panels, "16") ORTISAN_STEP(rows, panels, "20") \
  ORTISAN_STEP(rows, panels, "24") ORTISAN_STEP(rows, panels, "28")
#define ORTISAN_ADVANCE(bytes) \
  "add $" bytes ", %[a0]\n\tadd $" bytes ", %[a3]\n\tadd $" bytes ", %[a6]\n\tadd $" bytes ", %[a9]\n\t"

#define ORTISAN_TILE_ASM(rows, panels)                                                                     \
  asm volatile(ORTISAN_ROWS_##rows(ORTISAN_ZERO_##panels, "")                                              \
      "test %[more], %[more]\n\tjz 5f\n\t" ORTISAN_ROWS_##rows(ORTISAN_LOAD_##panels, "")                  \
      "5:\n\ttest %[blocks], %[blocks]\n\tjz 2f\n\t.p2align 5\n"                                           \
      "1:\n\t" ORTISAN_BLOCK(rows, panels) ORTISAN_ADVANCE("32") "dec %[blocks]\n\tjnz 1b\n"               \
      "2:\n\ttest %[rest], %[rest]\n\tjz 4f\n"                                                             \
      "3:\n\t" ORTISAN_STEP(rows, panels, "0") ORTISAN_ADVANCE("4") "dec %[rest]\n\tjnz 3b\n"              \
      "4:\n\t" ORTISAN_ROWS_##rows(ORTISAN_STORE_##panels, "") "vzeroupper\n\t"                            \
      : [a0] "+r"(a0), [a3] "+r"(a3), [a6] "+r"(a6), [a9] "+r"(a9), [b] "+r"(b), [from] "+r"(from),        \
        [to] "+r"(sums), [blocks] "+r"(blocks), [rest] "+r"(rest)                                          \
      : [lda] "r"(row), [ldb] "r"(ldb_bytes), [ldc] "r"(ldc_bytes), [second] "r"(second), [more] "r"(more) \
      : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",    \
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", \
        "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27")

#define ORTISAN_TILE(rows)                            \
  if constexpr (Rows == rows && Panels == 1) {        \
    ORTISAN_TILE_ASM(rows, ONE);                      \
  } else if constexpr (Rows == rows && Panels == 2) { \
    ORTISAN_TILE_ASM(rows, TWO);                      \
  }

// sums[Rows x 16 Panels] += a[Rows x K] b[K x 16 Panels], or = where there are no sums yet (`more` is 0). The
// second panel of b begins `distance` elements after the first.
template <int64_t Rows, int64_t Panels>
[[gnu::noinline]] void add_tile_avx512(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb, float* sums,
                                       int64_t ld_sums, int64_t more, int64_t distance) {
  static_assert(Rows <= 12 && (Panels == 1 || Panels == 2), "a tile has up to 12 rows and one or two panels");
  const int64_t row = lda * 4, ldb_bytes = ldb * 4, ldc_bytes = ld_sums * 4, second = distance * 4;
  const char* a0 = reinterpret_cast<const char*>(a);
  const char *a3 = a0 + 3 * row, *a6 = a0 + 6 * row, *a9 = a0 + 9 * row;
  const float* from = sums;
  int64_t blocks = K / 8, rest = K % 8;
  ORTISAN_TILE(1)
  ORTISAN_TILE(2)
  ORTISAN_TILE(3)
  ORTISAN_TILE(4)
  ORTISAN_TILE(5)
  ORTISAN_TILE(6)
  ORTISAN_TILE(7)
  ORTISAN_TILE(8)
  ORTISAN_TILE(9)
  ORTISAN_TILE(10)
  ORTISAN_TILE(11)
  ORTISAN_TILE(12)
}

}  // namespace ortisan::detail
