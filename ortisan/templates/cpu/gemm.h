// Matrix products with B packed in panels:  C[M,N] = A[M,K] * B[K,N].
//
// Panel p holds B[k][p*NR + j] at packed[(p*K + k)*NR + j], NR = panel_width<T>, zero-padded in the last panel. A is read in
// place, rows `lda` apart. The finished sums go to an epilogue, which writes the output:
//
//   epilogue(row, col, acc, n)      acc[0 .. n) are the sums of C[row, col .. col + n), in the compute type, n <= NR
//
// A sum is added up in the order of k by one thread, so neither M, the threads nor the other rows change it.
#pragma once

#include <cstdint>

#include "pieces.h"
#include "tile.h"
#include "transpose.h"
#include "types.h"

namespace ortisan {

// Elements of B[K,N] when packed.
template <class T>
constexpr int64_t packed_elements(int64_t K, int64_t N) {
  return (N + panel_width<T> - 1) / panel_width<T> * panel_width<T> * K;
}

namespace detail {

constexpr int64_t gemm_rows = 128;  // rows of A that one task works on: with all of K they stay in the L2 cache
constexpr int64_t gemm_depth = 768;  // k per block: a panel of that depth stays in the L1 and L2 caches
constexpr int64_t gemm_depth_converted = 256;

template <class T>
void pack_panel(int64_t K, int64_t width, const T* b, int64_t stride_k, int64_t stride_n, T* panel) {
  constexpr int64_t NR = panel_width<T>;
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
      for (int64_t k = k0; k < k1; ++k) panel[k * NR + j] = j < width ? b[k * stride_k + j * stride_n] : T{};
    }
  }
}

// sums[rows x NR] += A * panel for the k in [k0, k1), with a and the panel converted to the compute type block by block.
template <class T>
void add_converted(int64_t rows, int64_t k0, int64_t k1, const T* a, int64_t lda, const T* panel, compute_t<T>* sums) {
  using C = compute_t<T>;
  constexpr int64_t NR = panel_width<T>;
  C b_block[gemm_depth_converted * NR];
  C a_block[tile_rows<C> * gemm_depth_converted];
  const int64_t depth = k1 - k0;
  for (int64_t i = 0; i < depth * NR; ++i) b_block[i] = load(panel[k0 * NR + i]);
  const int64_t tiles = ceil_quotient(rows, tile_rows<C>);
  int64_t r = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t height = rows / tiles + (t < rows % tiles ? 1 : 0);
    for (int64_t i = 0; i < height; ++i) {
      const T* row = a + (r + i) * lda + k0;
      for (int64_t k = 0; k < depth; ++k) a_block[i * depth + k] = load(row[k]);
    }
    add_tile<C>(height, depth, a_block, depth, b_block, NR, sums + r * NR, NR, k0 > 0);
    r += height;
  }
}

// All of K for `rows` rows and one panel.
template <class T>
void add_panel(int64_t rows, int64_t K, const T* a, int64_t lda, const T* panel, compute_t<T>* sums) {
  constexpr int64_t NR = panel_width<T>;
  constexpr int64_t depth = is_small_float<T> ? gemm_depth_converted : gemm_depth;
  if (K == 0) {
    for (int64_t i = 0; i < rows * NR; ++i) sums[i] = compute_t<T>(0);
  }
  for (int64_t k0 = 0; k0 < K; k0 += depth) {
    const int64_t k1 = min_of(k0 + depth, K);
    if constexpr (is_small_float<T>) {
      add_converted(rows, k0, k1, a, lda, panel, sums);
    } else {
      // A single tile reads B at the speed of memory, where the hardware's own prefetching does best.
      const Next next = {panel + k1 * NR, rows > tile_rows<T> ? (k1 - k0) * NR * int64_t(sizeof(T)) : 0};
      add_tiles<T>(rows, k1 - k0, a + k0, lda, panel + k0 * NR, NR, sums, NR, k0 > 0, next);
    }
  }
}

}  // namespace detail

// Packs `batch` matrices B given with strides; matrix i is at b_of(i) and goes to packed + i * packed_elements<T>(K, N).
template <class T, class Matrices>
void bmm_pack_b(Context& c, int64_t batch, int64_t K, int64_t N, const Matrices& b_of, int64_t stride_k, int64_t stride_n,
                T* packed) {
  constexpr int64_t NR = panel_width<T>;
  const int64_t panels = ceil_quotient(N, NR);
  parallel_ranges(c, batch * panels, K * NR, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i % panels * NR;
      const T* b = b_of(i / panels) + col * stride_n;
      detail::pack_panel(K, min_of(NR, N - col), b, stride_k, stride_n, packed + i * K * NR);
    }
  });
}

template <class T>
void pack_b(Context& c, int64_t K, int64_t N, const T* b, int64_t stride_k, int64_t stride_n, T* packed) {
  bmm_pack_b(c, 1, K, N, [=](int64_t) { return b; }, stride_k, stride_n, packed);
}

// A batch of products: matrix i is A at a_of(i), B packed at packed_of(i); epilogue(i, row, col, acc, n).
template <class T, class MatricesA, class MatricesB, class Epilogue>
void bmm_packed(Context& c, int64_t batch, int64_t M, int64_t N, int64_t K, const MatricesA& a_of, int64_t lda,
                const MatricesB& packed_of, const Epilogue& epilogue) {
  constexpr int64_t NR = panel_width<T>;
  if (batch <= 0 || M <= 0 || N <= 0) return;
  const int64_t bands = ceil_quotient(M, detail::gemm_rows);
  const int64_t panels = ceil_quotient(N, NR);
  // Tasks of at least half a million multiplications.
  const int64_t panel_work = max_of(1, (M / bands) * K * NR);
  const int64_t group = min_of(panels, max_of(1, 500000 / panel_work));
  const int64_t groups = ceil_quotient(panels, group);
  const int64_t matrices = groups > 1 || bands > 1 ? 1 : max_of(1, 500000 / (panel_work * panels));
  const int64_t tasks_per_matrix = bands * groups;
  const int64_t tasks = batch * tasks_per_matrix;
  c.parallel(ceil_quotient(tasks, matrices), [&](int64_t piece) {
    compute_t<T> sums[detail::gemm_rows * NR];
    for (int64_t task = piece * matrices; task < min_of(tasks, (piece + 1) * matrices); ++task) {
      const int64_t i = task / tasks_per_matrix;
      const int64_t band = task % tasks_per_matrix / groups;
      const int64_t first_panel = task % groups * group;
      const int64_t first_row = band * (M / bands) + min_of(band, M % bands);
      const int64_t rows = M / bands + (band < M % bands ? 1 : 0);
      const T* a = a_of(i) + first_row * lda;
      for (int64_t p = first_panel; p < min_of(panels, first_panel + group); ++p) {
        detail::add_panel(rows, K, a, lda, packed_of(i) + p * K * NR, sums);
        const int64_t col = p * NR;
        const int64_t n = min_of(NR, N - col);
        if (n == NR) {
          for (int64_t r = 0; r < rows; ++r) epilogue(i, first_row + r, col, sums + r * NR, NR);
        } else {
          for (int64_t r = 0; r < rows; ++r) epilogue(i, first_row + r, col, sums + r * NR, n);
        }
      }
    }
  });
}

// One product; epilogue(row, col, acc, n).
template <class T, class Epilogue>
void gemm_packed(Context& c, int64_t M, int64_t N, int64_t K, const T* a, int64_t lda, const T* packed,
                 const Epilogue& epilogue) {
  bmm_packed<T>(
      c, 1, M, N, K, [=](int64_t) { return a; }, lda, [=](int64_t) { return packed; },
      [&](int64_t, int64_t row, int64_t col, const compute_t<T>* acc, int64_t n) { epilogue(row, col, acc, n); });
}

}  // namespace ortisan
