// Reductions over the middle axis of [outer, n, inner].
//
// An op says how a value is prepared, how values are folded, and what is made of the result. Reducing nothing gives the
// identity of the fold: 0, 1, an infinity (integers: their lowest or highest value); the mean of nothing is 0.
#pragma once

#include <cstdint>

#include "fold.h"

namespace ortisan {

namespace detail {

constexpr int64_t short_row = 16;  // elements up to which rows are folded side by side

// What is subtracted before exponentials are summed: the maximum, or nothing where that would be infinite.
template <class A>
inline A exp_shift(A maximum) {
  return fn::isinf(maximum) ? A(0) : maximum;
}

// One row, or one piece of it.
template <class Op, class A, class T>
inline A reduce_row(int64_t begin, int64_t end, const T* in) {
  return fold_row<typename Op::fold, A>(begin, end,
                                        [=](int64_t i) { return Op::prepare(static_cast<A>(load(in[i]))); });
}

template <class A, class T>
inline A log_sum_exp_row(int64_t n, const T* in) {
  using F = std::conditional_t<std::is_integral_v<A>, double, A>;
  const F shift = exp_shift(fold_row<FoldMax, F>(0, n, [=](int64_t i) { return static_cast<F>(load(in[i])); }));
  const F total = fold_row<FoldSum, F>(0, n, [=](int64_t i) { return fn::exp(static_cast<F>(load(in[i])) - shift); });
  return cast<A>(fn::log(total) + shift);
}

// A few long rows: every row is cut in the same pieces, whose results are folded in order.
template <class Op, class A, class T>
void reduce_long_rows(Context& c, int64_t outer, int64_t n, const T* in, T* out) {
  constexpr int64_t most = 64;
  const int64_t pieces = min_of(most, ceil_quotient(n, piece_elements));
  const int64_t length = ceil_quotient(ceil_quotient(n, pieces), fold_block) * fold_block;
  for (int64_t o = 0; o < outer; ++o) {
    A part[most];
    const T* row = in + o * n;
    c.parallel(pieces, [&](int64_t i) {
      part[i] = reduce_row<Op, A>(min_of(n, i * length), min_of(n, (i + 1) * length), row);
    });
    const A total = fold_row<typename Op::fold, A>(0, pieces, [&](int64_t i) { return part[i]; });
    out[o] = store<T>(static_cast<compute_t<T>>(Op::finish(total, n)));
  }
}

// out[j] = Op over i < n of at(i, j), for j < width <= fold_width.
template <class Op, class A, class At, class T>
void reduce_columns(int64_t n, int64_t width, const At& at, T* out) {
  A total[fold_width];
  if constexpr (std::is_same_v<Op, reduction::log_sum_exp>) {
    using F = std::conditional_t<std::is_integral_v<A>, double, A>;
    F shift[fold_width], sum[fold_width];
    const auto value = [&](int64_t i, int64_t j) { return static_cast<F>(at(i, j)); };
    fold_columns<FoldMax>(n, width, shift, value);
    for (int64_t j = 0; j < width; ++j) shift[j] = exp_shift(shift[j]);
    fold_columns<FoldSum>(n, width, sum, [&](int64_t i, int64_t j) { return fn::exp(value(i, j) - shift[j]); });
    for (int64_t j = 0; j < width; ++j) total[j] = cast<A>(fn::log(sum[j]) + shift[j]);
  } else {
    fold_columns<typename Op::fold>(n, width, total,
                                    [&](int64_t i, int64_t j) { return Op::prepare(static_cast<A>(at(i, j))); });
    for (int64_t j = 0; j < width; ++j) total[j] = Op::finish(total[j], n);
  }
  for (int64_t j = 0; j < width; ++j) out[j] = store<T>(static_cast<compute_t<T>>(total[j]));
}

// Many rows of a few elements: a row is a column of the fold.
template <class Op, class A, class T>
void reduce_short_rows(Context& c, int64_t rows, int64_t n, const T* in, T* out) {
  parallel_ranges(c, rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += fold_width) {
      const T* first = in + row * n;
      reduce_columns<Op, A>(
          n, min_of(fold_width, end - row), [=](int64_t i, int64_t j) { return load(first[j * n + i]); }, out + row);
    }
  });
}

// Calls f(o, column, width) over the blocks of at most fold_width columns of [outer, n, inner].
template <class F>
void for_column_blocks(Context& c, int64_t outer, int64_t n, int64_t inner, const F& f) {
  const int64_t blocks = ceil_quotient(inner, fold_width);
  parallel_ranges(c, outer * blocks, min_of(inner, fold_width) * max_of(n, 1), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t column = at % blocks * fold_width;
      f(at / blocks, column, min_of(fold_width, inner - column));
    }
  });
}

}  // namespace detail

// out[o, i] = Op over k < n of in[o, k, i]. Folded in type Acc; Op is one of namespace reduction.
template <class Op, class T, class Acc = compute_t<T>>
void reduce(Context& c, int64_t outer, int64_t n, int64_t inner, const T* in, T* out) {
  constexpr bool log_sum_exp = std::is_same_v<Op, reduction::log_sum_exp>;
  if (inner != 1) {
    detail::for_column_blocks(c, outer, n, inner, [&](int64_t o, int64_t column, int64_t width) {
      const T* top = in + o * n * inner + column;
      detail::reduce_columns<Op, Acc>(
          n, width, [=](int64_t i, int64_t j) { return load(top[i * inner + j]); }, out + o * inner + column);
    });
    return;
  }
  if (n <= detail::short_row) return detail::reduce_short_rows<Op, Acc>(c, outer, n, in, out);
  if (!log_sum_exp && outer < 8 && n >= 4 * piece_elements) {
    return detail::reduce_long_rows<Op, Acc>(c, outer, n, in, out);
  }
  parallel_ranges(c, outer, n, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      Acc result;
      if constexpr (log_sum_exp) {
        result = detail::log_sum_exp_row<Acc>(n, in + o * n);
      } else {
        result = Op::finish(detail::reduce_row<Op, Acc>(0, n, in + o * n), n);
      }
      out[o] = store<T>(static_cast<compute_t<T>>(result));
    }
  });
}

}  // namespace ortisan
