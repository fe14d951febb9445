// Arg-reductions and cumulative sums over the middle axis of [outer, n, inner].
#pragma once

#include <cstdint>

#include "fold.h"
#include "reduce.h"

namespace ortisan {

namespace detail {

template <bool maximum, class T>
void arg_reduce(Context& c, int64_t outer, int64_t n, int64_t inner, bool last, const T* in, int64_t* out) {
  using A = compute_t<T>;
  for_column_blocks(c, outer, n, inner, [&](int64_t o, int64_t column, int64_t width) {
    const T* from = in + o * n * inner + column;
    A best[fold_width];
    int64_t index[fold_width];
    for (int64_t j = 0; j < width; ++j) {
      best[j] = load(from[j]);
      index[j] = 0;
    }
    for (int64_t i = 1; i < n; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const A x = load(from[i * inner + j]);
        const bool take = beats<maximum>(x, best[j], last);
        best[j] = take ? x : best[j];
        index[j] = take ? i : index[j];
      }
    }
    for (int64_t j = 0; j < width; ++j) out[o * inner + column + j] = index[j];
  });
}

}  // namespace detail

// out[o, i] = the k < n where in[o, k, i] is largest: the first one, or with select_last_index the last. n > 0.
template <class T>
void argmax(Context& c, int64_t outer, int64_t n, int64_t inner, bool select_last_index, const T* in, int64_t* out) {
  detail::arg_reduce<true>(c, outer, n, inner, select_last_index, in, out);
}

template <class T>
void argmin(Context& c, int64_t outer, int64_t n, int64_t inner, bool select_last_index, const T* in, int64_t* out) {
  detail::arg_reduce<false>(c, outer, n, inner, select_last_index, in, out);
}

// out[o, k, i] = sum of in[o, m, i] over m <= k; `exclusive` leaves m == k out, `reverse` runs from the end.
template <class T>
void cumsum(Context& c, int64_t outer, int64_t n, int64_t inner, bool exclusive, bool reverse, const T* in, T* out) {
  using A = compute_t<T>;
  detail::for_column_blocks(c, outer, n, inner, [&](int64_t o, int64_t column, int64_t width) {
    const int64_t base = o * n * inner + column;
    A total[fold_width];
    for (int64_t j = 0; j < width; ++j) total[j] = A(0);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = base + (reverse ? n - 1 - k : k) * inner;
      for (int64_t j = 0; j < width; ++j) {
        const A before = total[j];
        total[j] = fn::add(before, static_cast<A>(load(in[at + j])));
        out[at + j] = store<T>(exclusive ? before : total[j]);
      }
    }
  });
}

}  // namespace ortisan
