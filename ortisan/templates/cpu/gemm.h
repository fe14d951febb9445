// Matrix products with B packed in panels:  C[M,N] = A[M,K] * B[K,N].
//
// Panel p holds B[k][p*NR + j] at packed[(p*K + k)*NR + j], NR = panel_width<T>, zero-padded in the last panel. A is read in
// place, rows `lda` apart. What becomes of the sums is the caller's:
//
//   finish(row, rows, col, sums, width, n)    sums [rows][width], in the compute type, has C[row .. row + rows, col .. col + n) in
//                                             its first n columns; it writes the output
//   touch(row, col)                           C[row, col ..] will be finished soon: fetches what finish will read and write
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

// How a product is cut into pieces: data, chosen by tuning. No cut changes a result.
struct GemmCut {
  int64_t depth;  // k per block: a panel of that depth stays in the nearer caches
  int64_t band;  // rows of A that one task works on: they stay in the L2 cache
  int64_t work;  // multiplications that make a task worth a thread
  bool fetch;  // whether the panel that comes next is fetched into the caches meanwhile
};

constexpr GemmCut default_cut = {768, 128, 100000, true};

// A cut and the most rows it was chosen for.
struct CutUpTo {
  int64_t rows;
  GemmCut cut;
};

// The cut for M rows; the last one of the table serves all that are more.
template <int64_t count>
constexpr const GemmCut& cut_for(int64_t M, const CutUpTo (&cuts)[count]) {
  int64_t i = 0;
  while (i + 1 < count && M > cuts[i].rows) ++i;
  return cuts[i].cut;
}

namespace detail {

constexpr int64_t largest_band = 256;
constexpr int64_t depth_in_thin_tiles = 96;  // k per block where two panels are read by two tiles
constexpr int64_t depth_converted = 256;  // k per block of types that are converted to compute with

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

// Panels that are worked on together: those of a tile. With few rows, their sums would wait for each other, and memory gives
// more when it is read in several places. A panel of four vectors has enough sums from two rows on. Up to six rows are two
// thin tiles, one after the other over pieces of the panels that stay in the L1 cache.
template <class T>
constexpr int64_t panels_at_once(int64_t rows) {
  if (is_small_float<T>) return 1;
  if (rows > (tile_panels<T> > 1 ? 1 : vector_bytes == 32 ? 2 * thin_tile_rows : thin_tile_rows)) return tile_panels<T>;
  return vector_bytes == 16 ? (rows == 1 ? 2 : 1) : (rows == 1 ? 4 : 2);
}

// A piece of a product: `rows` rows from `row` on, the columns of `panels` panels from `col` on, all of K.
template <class T>
struct Strip {
  using C = compute_t<T>;
  static constexpr int64_t NR = panel_width<T>;
  static constexpr int64_t at_once = is_small_float<T> ? 1 : tile_panels<C>;

  int64_t row, rows, col, panels;
  int64_t N, K;
  const T* a;  // the first of the rows
  int64_t lda;
  const T* packed;  // the first of the panels
  GemmCut cut;

  template <class Finish, class Touch>
  void run(const Finish& finish, const Touch& touch) const {
    C sums[largest_band * NR * tile_panels<C>];
    const int64_t width = panels * NR;
    const int64_t tiles = ceil_quotient(rows, rows_over<C>(panels));
    const int64_t low = rows / tiles, higher = rows % tiles;
    if (K == 0) {
      for (int64_t i = 0; i < rows * width; ++i) sums[i] = C(0);
      finish_rows(0, rows, sums, finish);
    }
    const bool thin = panels > tile_panels<C>;
    const int64_t depth = is_small_float<T> ? depth_converted : thin && tiles > 1 ? depth_in_thin_tiles : cut.depth;
    for (int64_t k0 = 0; k0 < K; k0 += depth) {
      const int64_t k1 = min_of(k0 + depth, K);
      // A single tile reads B at the speed of memory, where the hardware's own prefetching does best.
      const int64_t share = cut.fetch && tiles > 1 && !thin ? (k1 - k0) * NR * int64_t(sizeof(T)) / tiles : 0;
      Next next = Next::spread(packed + (k1 < K ? k1 : panels * K) * NR, share, k1 - k0);
      C converted[is_small_float<T> ? depth_converted * NR : 1];
      if constexpr (is_small_float<T>) {
        for (int64_t i = 0; i < (k1 - k0) * NR; ++i) converted[i] = load(packed[k0 * NR + i]);
      }
      int64_t r = 0;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t height = low + (t < higher ? 1 : 0);
        if (k1 == K) {
          for (int64_t i = 0; i < height; ++i) {
            for (int64_t p = 0; p < min_of(panels, at_once); ++p) touch(row + r + i, col + p * NR);
          }
        }
        add(r, height, k0, k1, converted, sums + r * width, next);
        next.from += share;
        if (k1 == K) finish_rows(r, height, sums + r * width, finish);
        r += height;
      }
    }
  }

  // Adds to the sums of `height` rows from r on what the k in [k0, k1) give.
  void add(int64_t r, int64_t height, int64_t k0, int64_t k1, const C* converted, C* sums, const Next& next) const {
    const int64_t count = k1 - k0;
    if constexpr (is_small_float<T>) {
      C block[tile_rows<C> * depth_converted];
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t k = 0; k < count; ++k) block[i * count + k] = load(a[(r + i) * lda + k0 + k]);
      }
      add_tile<C>(height, count, block, count, converted, NR, sums, NR, k0 > 0, next);
    } else if (panels == 1) {
      add_tile<C>(height, count, a + r * lda + k0, lda, packed + k0 * NR, NR, sums, NR, k0 > 0, next);
    } else {
      add_panels<C>(height, panels, count, a + r * lda + k0, lda, packed + k0 * NR, K * NR, sums, k0 > 0, next);
    }
  }

  template <class Finish>
  void finish_rows(int64_t r, int64_t height, const C* sums, const Finish& finish) const {
    const int64_t n = min_of(panels * NR, N - col);
    constexpr int64_t whole = at_once * NR;
    if (n == whole && panels == at_once)
      finish(row + r, height, col, sums, whole, whole);
    else
      finish(row + r, height, col, sums, panels * NR, n);
  }
};

// The panels of one product that a task works on.
template <class T, class Finish, class Touch>
void run_panels(Strip<T> strip, int64_t first, int64_t last, const T* packed, const Finish& finish, const Touch& touch) {
  constexpr int64_t NR = panel_width<T>;
  const int64_t at_once = panels_at_once<T>(strip.rows);
  for (int64_t p = first; p < last; p += strip.panels) {
    strip.panels = last - p < at_once ? 1 : at_once;
    strip.col = p * NR;
    strip.packed = packed + p * strip.K * NR;
    strip.run(finish, touch);
  }
}

// Bands of nearly equal height, and groups of panels, that make the tasks of a product. Panels that are worked on together
// are never in two groups.
struct Tasks {
  int64_t M, panels, bands, unit, groups;

  template <class T>
  static Tasks cut(int64_t M, int64_t K, int64_t panels, const GemmCut& cut) {
    const int64_t bands = ceil_quotient(M, min_of(cut.band, largest_band));
    const int64_t unit = panels_at_once<T>(M / bands), units = ceil_quotient(panels, unit);
    const int64_t unit_work = max_of(1, M / bands * K * panel_width<T> * unit);
    const int64_t group = min_of(units, max_of(1, ceil_quotient(cut.work, unit_work)));
    return {M, panels, bands, unit, ceil_quotient(units, group)};
  }
  int64_t count() const { return bands * groups; }
  int64_t first_row(int64_t task) const { return task / groups * (M / bands) + min_of(task / groups, M % bands); }
  int64_t rows(int64_t task) const { return M / bands + (task / groups < M % bands ? 1 : 0); }
  // The panels are shared out evenly.
  int64_t first_panel(int64_t task) const { return task % groups * ceil_quotient(panels, unit) / groups * unit; }
  int64_t last_panel(int64_t task) const {
    return min_of(panels, (task % groups + 1) * ceil_quotient(panels, unit) / groups * unit);
  }
};

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

// A batch of products: matrix i is A at a_of(i), B packed at packed_of(i); finish(i, row, ...), touch(i, row, col).
template <class T, class MatricesA, class MatricesB, class Finish, class Touch>
void bmm_packed(Context& c, int64_t batch, int64_t M, int64_t N, int64_t K, const MatricesA& a_of, int64_t lda,
                const MatricesB& packed_of, const GemmCut& cut, const Finish& finish, const Touch& touch) {
  if (batch <= 0 || M <= 0 || N <= 0) return;
  const detail::Tasks tasks = detail::Tasks::cut<T>(M, K, ceil_quotient(N, panel_width<T>), cut);
  // Small matrices share a task.
  const int64_t matrices = tasks.count() > 1 ? 1 : max_of(1, cut.work / max_of(1, M * N * K));
  const int64_t all = batch * tasks.count();
  c.parallel(ceil_quotient(all, matrices), [&](int64_t piece) {
    for (int64_t n = piece * matrices; n < min_of(all, (piece + 1) * matrices); ++n) {
      const int64_t i = n / tasks.count(), task = n % tasks.count(), row = tasks.first_row(task);
      detail::run_panels<T>(
          {row, tasks.rows(task), 0, 1, N, K, a_of(i) + row * lda, lda, nullptr, cut},
          tasks.first_panel(task), tasks.last_panel(task), packed_of(i),
          [&](int64_t r, int64_t rows, int64_t col, const compute_t<T>* sums, int64_t width, int64_t columns)
              ORTISAN_INLINE { finish(i, r, rows, col, sums, width, columns); },
          [&](int64_t r, int64_t col) ORTISAN_INLINE { touch(i, r, col); });
    }
  });
}

// One of the products that gemm_packed computes from the same A.
template <class T, class Finish, class Touch>
struct Product {
  int64_t N;
  const T* packed;
  Finish finish;
  Touch touch;

  Product(int64_t columns, const T* b, const Finish& f, const Touch& t) : N(columns), packed(b), finish(f), touch(t) {}
};

// Products of one A with several B, whose panels are one list of work.
template <class T, class... Products>
void gemm_packed(Context& c, int64_t M, int64_t K, const T* a, int64_t lda, const GemmCut& cut, const Products&... products) {
  constexpr int64_t NR = panel_width<T>;
  const int64_t panels = (... + ceil_quotient(products.N, NR));
  if (M <= 0 || panels <= 0) return;
  const detail::Tasks tasks = detail::Tasks::cut<T>(M, K, panels, cut);
  c.parallel(tasks.count(), [&](int64_t task) {
    const int64_t row = tasks.first_row(task);
    const detail::Strip<T> strip = {row, tasks.rows(task), 0, 1, 0, K, a + row * lda, lda, nullptr, cut};
    int64_t before = 0;
    const auto run = [&](const auto& product) {
      const int64_t own = ceil_quotient(product.N, NR);
      const int64_t first = max_of(tasks.first_panel(task) - before, 0), last = min_of(tasks.last_panel(task) - before, own);
      detail::Strip<T> piece = strip;
      piece.N = product.N;
      if (first < last) detail::run_panels<T>(piece, first, last, product.packed, product.finish, product.touch);
      before += own;
    };
    (run(products), ...);
  });
}

}  // namespace ortisan
