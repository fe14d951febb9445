// The register tile for NEON in float, as one asm block: compilers spill registers of this loop.
//
//   v0 .. v23     the sums: 4 vectors for each of up to 6 rows
//   v24 .. v29    four steps of k of each row of a, multiplied with by element
//   v30, v31      the row of b, one half of the panel after the other
#pragma once

#include <cstdint>

namespace ortisan::detail {

#define ORTISAN_HALF(c0, c1, a, k)                           \
  "fmla v" c0 ".4s, v30.4s, v" a ".s[" k "]\n\t"             \
  "fmla v" c1 ".4s, v31.4s, v" a ".s[" k "]\n\t"
#define ORTISAN_LEFT_1(k) ORTISAN_HALF("0", "1", "24", k)
#define ORTISAN_LEFT_2(k) ORTISAN_LEFT_1(k) ORTISAN_HALF("4", "5", "25", k)
#define ORTISAN_LEFT_3(k) ORTISAN_LEFT_2(k) ORTISAN_HALF("8", "9", "26", k)
#define ORTISAN_LEFT_4(k) ORTISAN_LEFT_3(k) ORTISAN_HALF("12", "13", "27", k)
#define ORTISAN_LEFT_5(k) ORTISAN_LEFT_4(k) ORTISAN_HALF("16", "17", "28", k)
#define ORTISAN_LEFT_6(k) ORTISAN_LEFT_5(k) ORTISAN_HALF("20", "21", "29", k)
#define ORTISAN_RIGHT_1(k) ORTISAN_HALF("2", "3", "24", k)
#define ORTISAN_RIGHT_2(k) ORTISAN_RIGHT_1(k) ORTISAN_HALF("6", "7", "25", k)
#define ORTISAN_RIGHT_3(k) ORTISAN_RIGHT_2(k) ORTISAN_HALF("10", "11", "26", k)
#define ORTISAN_RIGHT_4(k) ORTISAN_RIGHT_3(k) ORTISAN_HALF("14", "15", "27", k)
#define ORTISAN_RIGHT_5(k) ORTISAN_RIGHT_4(k) ORTISAN_HALF("18", "19", "28", k)
#define ORTISAN_RIGHT_6(k) ORTISAN_RIGHT_5(k) ORTISAN_HALF("22", "23", "29", k)
#define ORTISAN_STEP(rows, k)                                            \
  "ldp q30, q31, [%[b]]\n\t" ORTISAN_LEFT_##rows(k)                      \
  "ldp q30, q31, [%[b], #32]\n\tadd %[b], %[b], %[ldb]\n\t" ORTISAN_RIGHT_##rows(k)

// One element of each row of a ("s", "4") or four of them ("q", "16").
#define ORTISAN_A_1(type, bytes) "ldr " type "24, [%[a0]], #" bytes "\n\t"
#define ORTISAN_A_2(type, bytes) ORTISAN_A_1(type, bytes) "ldr " type "25, [%[a1]], #" bytes "\n\t"
#define ORTISAN_A_3(type, bytes) ORTISAN_A_2(type, bytes) "ldr " type "26, [%[a2]], #" bytes "\n\t"
#define ORTISAN_A_4(type, bytes) ORTISAN_A_3(type, bytes) "ldr " type "27, [%[a3]], #" bytes "\n\t"
#define ORTISAN_A_5(type, bytes) ORTISAN_A_4(type, bytes) "ldr " type "28, [%[a4]], #" bytes "\n\t"
#define ORTISAN_A_6(type, bytes) ORTISAN_A_5(type, bytes) "ldr " type "29, [%[a5]], #" bytes "\n\t"

#define ORTISAN_PAIRS(move, at, c0, c1, c2, c3)                                         \
  move " q" c0 ", q" c1 ", [%[" at "]]\n\t" move " q" c2 ", q" c3 ", [%[" at "], #32]\n\t" \
  "add %[" at "], %[" at "], %[ldc]\n\t"
#define ORTISAN_LOAD(c0, c1, c2, c3) ORTISAN_PAIRS("ldp", "from", c0, c1, c2, c3)
#define ORTISAN_STORE(c0, c1, c2, c3) ORTISAN_PAIRS("stp", "to", c0, c1, c2, c3)
#define ORTISAN_ZERO(c0, c1, c2, c3) \
  "movi v" c0 ".4s, #0\n\tmovi v" c1 ".4s, #0\n\tmovi v" c2 ".4s, #0\n\tmovi v" c3 ".4s, #0\n\t"
#define ORTISAN_SUMS_1(what) what("0", "1", "2", "3")
#define ORTISAN_SUMS_2(what) ORTISAN_SUMS_1(what) what("4", "5", "6", "7")
#define ORTISAN_SUMS_3(what) ORTISAN_SUMS_2(what) what("8", "9", "10", "11")
#define ORTISAN_SUMS_4(what) ORTISAN_SUMS_3(what) what("12", "13", "14", "15")
#define ORTISAN_SUMS_5(what) ORTISAN_SUMS_4(what) what("16", "17", "18", "19")
#define ORTISAN_SUMS_6(what) ORTISAN_SUMS_5(what) what("20", "21", "22", "23")

#define ORTISAN_TILE_ASM(rows)                                                                             \
  asm volatile(ORTISAN_SUMS_##rows(ORTISAN_ZERO) "cbz %[more], 5f\n\t" ORTISAN_SUMS_##rows(ORTISAN_LOAD)   \
      "5:\n\tcbz %[blocks], 2f\n"                                                                          \
      "1:\n\t" ORTISAN_A_##rows("q", "16") ORTISAN_STEP(rows, "0") ORTISAN_STEP(rows, "1")                 \
      ORTISAN_STEP(rows, "2") ORTISAN_STEP(rows, "3") "sub %[blocks], %[blocks], #1\n\tcbnz %[blocks], 1b\n" \
      "2:\n\tcbz %[rest], 4f\n"                                                                            \
      "3:\n\t" ORTISAN_A_##rows("s", "4") ORTISAN_STEP(rows, "0")                                          \
      "sub %[rest], %[rest], #1\n\tcbnz %[rest], 3b\n"                                                     \
      "4:\n\t" ORTISAN_SUMS_##rows(ORTISAN_STORE)                                                          \
      : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [a4] "+r"(a4), [a5] "+r"(a5),          \
        [b] "+r"(b), [from] "+r"(from), [to] "+r"(sums), [blocks] "+r"(blocks), [rest] "+r"(rest)          \
      : [ldb] "r"(ldb_bytes), [ldc] "r"(ldc_bytes), [more] "r"(more)                                       \
      : "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",  \
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",  \
        "v28", "v29", "v30", "v31")

#define ORTISAN_TILE(rows) \
  if constexpr (Rows == rows) ORTISAN_TILE_ASM(rows);

// sums[Rows x 16] += a[Rows x K] b[K x 16], or = where there are no sums yet (`more` is 0).
template <int64_t Rows>
[[gnu::noinline]] void add_tile_neon(int64_t K, const float* a, int64_t lda, const float* b, int64_t ldb, float* sums,
                                     int64_t ld_sums, int64_t more) {
  static_assert(Rows <= 6, "a tile of up to 6 rows");
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

}  // namespace ortisan::detail
