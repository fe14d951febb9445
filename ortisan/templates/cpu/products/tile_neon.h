// The register tile for NEON in float, as one asm block: compilers spill registers of this loop.
//
//   v0 .. v23     the sums: 4 vectors for each of up to 6 rows
//   v24 .. v29    four steps of k of each row of a, multiplied with by element
//   v30, v31      the row of b, one half of the panel after the other
#pragma once

#include <cstdint>

#include "tile_call.h"

namespace ortisan::detail {

// clang-format off
// The rows of a tile: where each reads a, the register of what it read, and the registers of its sums; x and y are handed on.
#define ORTISAN_ROWS_1(what, x, y) what(x, y, "a0", "24", "0", "1", "2", "3")
#define ORTISAN_ROWS_2(what, x, y) ORTISAN_ROWS_1(what, x, y) what(x, y, "a1", "25", "4", "5", "6", "7")
#define ORTISAN_ROWS_3(what, x, y) ORTISAN_ROWS_2(what, x, y) what(x, y, "a2", "26", "8", "9", "10", "11")
#define ORTISAN_ROWS_4(what, x, y) ORTISAN_ROWS_3(what, x, y) what(x, y, "a3", "27", "12", "13", "14", "15")
#define ORTISAN_ROWS_5(what, x, y) ORTISAN_ROWS_4(what, x, y) what(x, y, "a4", "28", "16", "17", "18", "19")
#define ORTISAN_ROWS_6(what, x, y) ORTISAN_ROWS_5(what, x, y) what(x, y, "a5", "29", "20", "21", "22", "23")

// One element of a row of a ("s", "4") or four of them ("q", "16").
#define ORTISAN_READ(type, bytes, from, a, c0, c1, c2, c3) "ldr " type a ", [%[" from "]], #" bytes "\n\t"

// Step k of those four, with one half of the panel and with the other.
#define ORTISAN_MULTIPLY(k, a, c0, c1)           \
  "fmla v" c0 ".4s, v30.4s, v" a ".s[" k "]\n\t" \
  "fmla v" c1 ".4s, v31.4s, v" a ".s[" k "]\n\t"
#define ORTISAN_LEFT(k, y, from, a, c0, c1, c2, c3) ORTISAN_MULTIPLY(k, a, c0, c1)
#define ORTISAN_RIGHT(k, y, from, a, c0, c1, c2, c3) ORTISAN_MULTIPLY(k, a, c2, c3)
#define ORTISAN_STEP(rows, k)                                               \
  "ldp q30, q31, [%[b]]\n\t" ORTISAN_ROWS_##rows(ORTISAN_LEFT, k, "")       \
  "ldp q30, q31, [%[b], #32]\n\tadd %[b], %[b], %[ldb]\n\t" ORTISAN_ROWS_##rows(ORTISAN_RIGHT, k, "")

// The sums of a row: moved by pairs from or to memory, or zeroed.
#define ORTISAN_MOVE(move, at, from, a, c0, c1, c2, c3)                                    \
  move " q" c0 ", q" c1 ", [%[" at "]]\n\t" move " q" c2 ", q" c3 ", [%[" at "], #32]\n\t" \
  "add %[" at "], %[" at "], %[ldc]\n\t"
#define ORTISAN_ZERO(x, y, from, a, c0, c1, c2, c3) \
  "movi v" c0 ".4s, #0\n\tmovi v" c1 ".4s, #0\n\tmovi v" c2 ".4s, #0\n\tmovi v" c3 ".4s, #0\n\t"

#define ORTISAN_TILE_ASM(rows)                                                                             \
  asm volatile(ORTISAN_ROWS_##rows(ORTISAN_ZERO, "", "") "cbz %[more], 5f\n\t"                              \
      ORTISAN_ROWS_##rows(ORTISAN_MOVE, "ldp", "from")                                                     \
      "5:\n\tcbz %[blocks], 2f\n"                                                                          \
      "1:\n\t" ORTISAN_ROWS_##rows(ORTISAN_READ, "q", "16") ORTISAN_STEP(rows, "0") ORTISAN_STEP(rows, "1")                 \
      ORTISAN_STEP(rows, "2") ORTISAN_STEP(rows, "3") "sub %[blocks], %[blocks], #1\n\tcbnz %[blocks], 1b\n" \
      "2:\n\tcbz %[rest], 4f\n"                                                                            \
      "3:\n\t" ORTISAN_ROWS_##rows(ORTISAN_READ, "s", "4") ORTISAN_STEP(rows, "0")                                          \
      "sub %[rest], %[rest], #1\n\tcbnz %[rest], 3b\n"                                                     \
      "4:\n\t" ORTISAN_ROWS_##rows(ORTISAN_MOVE, "stp", "to")                                            \
      : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [a4] "+r"(a4), [a5] "+r"(a5),          \
        [b] "+r"(b), [from] "+r"(from), [to] "+r"(sums), [blocks] "+r"(blocks), [rest] "+r"(rest)          \
      : [ldb] "r"(ldb_bytes), [ldc] "r"(ldc_bytes), [more] "r"(more)                                       \
      : "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",  \
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",  \
        "v28", "v29", "v30", "v31")

#define ORTISAN_TILE(rows) \
  if constexpr (Rows == rows) ORTISAN_TILE_ASM(rows);
// clang-format on

struct TileNeon {
  static constexpr int64_t rows = 6, panels = 1;
  static constexpr bool prefetches = false, halves = false, clamps = false;
  template <int64_t Rows, int64_t Panels>
  static constexpr bool has = Rows >= 1 && Rows <= rows && Panels == 1;

  template <int64_t Rows, int64_t Panels>
  ORTISAN_INLINE static void add(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t,
                                 float* sums, int64_t ld_sums, bool more, const Next&) {
    multiply<Rows>(K, a, lda, b, ldb, sums, ld_sums, more);
  }

 private:
  template <int64_t Rows>
  [[gnu::noinline]] static void multiply(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb,
                                         float* sums, int64_t ld_sums, int64_t more) {
    const int64_t ldb_bytes = ldb * 4, ldc_bytes = ld_sums * 4;
    const float *a0 = a, *a1 = a0 + lda, *a2 = a1 + lda, *a3 = a2 + lda, *a4 = a3 + lda, *a5 = a4 + lda;
    const float* from = sums;
    int64_t blocks = K / 4, rest = K % 4;
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
#undef ORTISAN_READ
#undef ORTISAN_MULTIPLY
#undef ORTISAN_LEFT
#undef ORTISAN_RIGHT
#undef ORTISAN_STEP
#undef ORTISAN_MOVE
#undef ORTISAN_ZERO
#undef ORTISAN_TILE_ASM
#undef ORTISAN_TILE

}  // namespace ortisan::detail
