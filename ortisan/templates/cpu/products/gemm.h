// Matrix products with B packed in panels:  C[M,N] = A[M,K] * B[K,N].
//
// A, of T, is read in place, rows `lda` apart; the panels are those of panels.h, of W. What becomes of the sums is the caller's:
//
//   epilogue(row, rows, col, sums, width, n)    sums [rows][width], in the compute type, has C[row .. row + rows, col .. col + n) in
//                                               its first n columns; it writes the output
//   prefetch(row, col)                          C[row, col ..] comes soon: fetches what the epilogue will read and write
//
// A sum is added up in the order of k by one thread, so neither M, the threads nor the other rows change it.
#pragma once

#include <cstdint>

#include "blocking.h"
#include "clamp.h"
#include "launch.h"
#include "panels.h"
#include "pieces.h"
#include "tile.h"
#include "types.h"

namespace ortisan {
namespace detail {

// The macro tile of a product: `rows` rows from `row` on, the columns of `panels` panels from `col` on, all of K.
template <class T, class W = T>
struct MacroTile {
  using C = compute_t<T>;
  using P = factor_t<T, W>;
  static constexpr bool converts_a = !std::is_same_v<T, P>, converts_b = !std::is_same_v<W, P>;
  static constexpr int64_t NR = panel_width<W>;
  static constexpr int64_t at_once = converts_a ? 1 : tile_panels<P>;

  int64_t row, rows, col, panels;
  int64_t N, K;
  const T* a;  // the first of the rows
  int64_t lda;
  const W* packed;  // the first of the panels
  Blocking blocking;

  template <class Epilogue, class Prefetch>
  void run(const Epilogue& epilogue, const Prefetch& prefetch) const {
    C sums[largest_band * NR * tile_panels<P>];
    const int64_t width = panels * NR;
    const TileLoop loop = TileLoop::of<T, W>(rows, panels, blocking);
    const int64_t tiles = loop.tiles, low = rows / tiles, higher = rows % tiles;
    if (K == 0) {
      for (int64_t i = 0; i < rows * width; ++i) sums[i] = C(0);
      run_epilogue(0, rows, sums, epilogue);
    }
    for (int64_t k0 = 0; k0 < K; k0 += loop.depth) {
      const int64_t k1 = min_of(k0 + loop.depth, K);
      const int64_t share = loop.prefetch ? (k1 - k0) * NR * int64_t(sizeof(W)) / tiles : 0;
      Next next = Next::spread(packed + (k1 < K ? k1 : panels * panel_depth<W>(K)) * NR, share, k1 - k0);
      C converted[converts_b ? depth_converted * NR : 1];
      if constexpr (converts_b) {
        for (int64_t p = 0; p < panels && panels <= tile_panels<P>; ++p)
          unpack_panel(packed + p * panel_depth<W>(K) * NR, k0, k1, converted + p * (k1 - k0) * NR);
      }
      int64_t r = 0;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t height = low + (t < higher ? 1 : 0);
        if (k1 == K && K >= depth_that_fetches) {
          for (int64_t i = 0; i < height; ++i) {
            for (int64_t p = 0; p < min_of(panels, at_once); ++p) prefetch(row + r + i, col + p * NR);
          }
        }
        if (!add_clamped_to(epilogue, r, height, next)) {
          add(r, height, k0, k1, converted, sums + r * width, next);
          if (k1 == K) run_epilogue(r, height, sums + r * width, epilogue);
        }
        next.from += share;
        r += height;
      }
    }
  }

  // Where results are clamped sums over one block of k, and no panel is part empty, tiles write them by themselves.
  template <class Epilogue>
  bool add_clamped_to(const Epilogue& epilogue, int64_t r, int64_t height, const Next& next) const {
    if constexpr (is_clamped<Epilogue> && tile_of<P>::clamps && !converts_a && !converts_b) {
      if (K > blocking.depth || panels > 2 || N - col < panels * NR || next.fetches > 1) return false;
      T* const out = epilogue.out + (row + r) * N + col;
      add_clamped<T>(height, panels, K, a + r * lda, lda, packed, K * NR, out, N, next, epilogue.clamp.from(col));
      return true;
    }
    return false;
  }

  // Adds to the sums of `height` rows from r on what the k in [k0, k1) give.
  void add(int64_t r, int64_t height, int64_t k0, int64_t k1, const C* converted, C* sums, const Next& next) const {
    const int64_t count = k1 - k0;
    const T* own = a + r * lda + k0;
    if constexpr (converts_a) {
      C block[tile_rows<P> * depth_converted];
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t k = 0; k < count; ++k) block[i * count + k] = load(own[i * lda + k]);
      }
      add_tile<P>(height, count, block, count, converted, NR, sums, NR, k0 > 0, next);
    } else if constexpr (converts_b) {
      const int64_t stride = panel_depth<W>(K) * NR;
      if (panels > tile_panels<P>)
        TileWidening::add<4>(count, own, packed + k0 * NR, stride, sums, k0 > 0);
      else
        add_side_by_side(height, count, own, converted, count * NR, sums, k0 > 0, next);
    } else {
      add_side_by_side(height, count, own, packed + k0 * NR, panel_depth<W>(K) * NR, sums, k0 > 0, next);
    }
  }

  void add_side_by_side(int64_t height, int64_t count, const P* own, const P* b, int64_t panel_stride, C* sums,
                        bool more, const Next& next) const {
    if (panels == 1)
      add_tile<P>(height, count, own, lda, b, NR, sums, NR, more, next, N - col);
    else
      add_panels<P>(height, panels, count, own, lda, b, panel_stride, sums, more, next, N - col);
  }

  template <class Epilogue>
  void run_epilogue(int64_t r, int64_t height, const C* sums, const Epilogue& epilogue) const {
    const int64_t n = min_of(panels * NR, N - col);
    constexpr int64_t whole = at_once * NR;
    if (n == whole && panels == at_once)
      epilogue(row + r, height, col, sums, whole, whole);
    else
      epilogue(row + r, height, col, sums, panels * NR, n);
  }
};

// The panels of one product that a task works on.
template <class T, class W, class Epilogue, class Prefetch>
void run_panels(MacroTile<T, W> tile, int64_t first, int64_t last, const W* packed, const Epilogue& epilogue,
                const Prefetch& prefetch) {
  constexpr int64_t NR = panel_width<W>;
  const int64_t at_once = panels_at_once<T, W>(tile.rows);
  for (int64_t p = first; p < last; p += tile.panels) {
    tile.panels = last - p < at_once ? 1 : at_once;
    tile.col = p * NR;
    tile.packed = packed + p * panel_depth<W>(tile.K) * NR;
    tile.run(epilogue, prefetch);
  }
}

}  // namespace detail

// Packs `batch` matrices B given with strides; matrix i is at b_of(i) and goes to packed + i * packed_elements<T>(K, N).
template <class T, class Matrices>
void bmm_pack_b(Context& c, int64_t batch, int64_t K, int64_t N, const Matrices& b_of, int64_t stride_k,
                int64_t stride_n, T* packed) {
  constexpr int64_t NR = panel_width<T>;
  const int64_t panels = ceil_quotient(N, NR);
  parallel_ranges(c, batch * panels, K * NR, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i % panels * NR;
      const T* b = b_of(i / panels) + col * stride_n;
      detail::pack_panel(K, min_of(NR, N - col), b, stride_k, stride_n, packed + i * panel_depth<T>(K) * NR);
    }
  });
}

template <class T>
void pack_b(Context& c, int64_t K, int64_t N, const T* b, int64_t stride_k, int64_t stride_n, T* packed) {
  bmm_pack_b(c, 1, K, N, [=](int64_t) { return b; }, stride_k, stride_n, packed);
}

// A batch of products: matrix i is A at a_of(i), B packed at packed_of(i); epilogue(i, row, ...), prefetch(i, row, col).
template <class T, class MatricesA, class MatricesB, class Epilogue, class Prefetch>
void bmm_packed(Context& c, int64_t batch, int64_t M, int64_t N, int64_t K, const MatricesA& a_of, int64_t lda,
                const MatricesB& packed_of, const Blocking& blocking, const Epilogue& epilogue,
                const Prefetch& prefetch) {
  if (batch <= 0 || M <= 0 || N <= 0) return;
  const detail::Tasks tasks = detail::Tasks::of<T>(M, K, ceil_quotient(N, panel_width<T>), blocking);
  // Small matrices share a task.
  const int64_t matrices = tasks.count() > 1 ? 1 : max_of(1, blocking.work / max_of(1, M * N * K));
  const int64_t all = batch * tasks.count();
  c.parallel(ceil_quotient(all, matrices), [&](int64_t piece) {
    for (int64_t n = piece * matrices; n < min_of(all, (piece + 1) * matrices); ++n) {
      const int64_t i = n / tasks.count(), task = n % tasks.count(), row = tasks.first_row(task);
      detail::run_panels(
          detail::MacroTile<T>{row, tasks.rows(task), 0, 1, N, K, a_of(i) + row * lda, lda, nullptr, blocking},
          tasks.first_panel(task), tasks.last_panel(task), packed_of(i),
          [&](int64_t r, int64_t rows, int64_t col, const compute_t<T>* sums, int64_t width, int64_t columns)
              ORTISAN_INLINE { epilogue(i, r, rows, col, sums, width, columns); },
          [&](int64_t r, int64_t col) ORTISAN_INLINE { prefetch(i, r, col); });
    }
  });
}

// One of the products that gemm_packed computes from the same A.
template <class W, class Epilogue, class Prefetch>
struct Product {
  int64_t N;
  const W* packed;
  Epilogue epilogue;
  Prefetch prefetch;

  Product(int64_t columns, const W* b, const Epilogue& e, const Prefetch& p)
      : N(columns), packed(b), epilogue(e), prefetch(p) {}
};

// Products of one A with several B, whose panels are one list of work.
template <class T, class W = T, class... Products>
void gemm_packed(Context& c, int64_t M, int64_t K, const T* a, int64_t lda, const Blocking& blocking,
                 const Products&... products) {
  constexpr int64_t NR = panel_width<W>;
  const int64_t panels = (... + ceil_quotient(products.N, NR));
  if (M <= 0 || panels <= 0) return;
  const detail::Tasks tasks = detail::Tasks::of<T, W>(M, K, panels, blocking);
  c.parallel(tasks.count(), [&](int64_t task) {
    const int64_t row = tasks.first_row(task);
    const detail::MacroTile<T, W> tile = {row, tasks.rows(task), 0, 1, 0, K, a + row * lda, lda, nullptr, blocking};
    int64_t before = 0;
    const auto run = [&](const auto& product) {
      const int64_t own = ceil_quotient(product.N, NR);
      const int64_t first = max_of(tasks.first_panel(task) - before, 0),
                    last = min_of(tasks.last_panel(task) - before, own);
      detail::MacroTile<T, W> piece = tile;
      piece.N = product.N;
      if (first < last) detail::run_panels(piece, first, last, product.packed, product.epilogue, product.prefetch);
      before += own;
    };
    (run(products), ...);
  });
}

}  // namespace ortisan
