// Softmax over the middle axis of [outer, n, inner], and normalisations of rows [outer, n].
//
// Statistics are folded in the compute type in a fixed order (fold.h); variances are taken in a second pass around the mean.
#pragma once

#include <cstdint>

#include "fold.h"
#include "loops.h"
#include "reduce.h"

namespace ortisan {

namespace detail {

// The largest value, or anything when there is a NaN: the sum that follows is NaN then.
struct FoldTop : FoldMax {
  template <class A>
  static A fold(A a, A b) {
    return a > b ? a : b;
  }
};

template <bool logarithm, class T>
void softmax_row(int64_t n, const T* x, T* y) {
  using A = compute_t<T>;
  const A top = fold_array<FoldTop, A>(x, n);
  if constexpr (!logarithm && std::is_same_v<T, A>) {
    ORTISAN_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = fn::exp_nonpositive(x[i] - top);
    const A scale = A(1) / fold_array<FoldSum, A>(y, n);
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    return;
  }
  const A total = fold_row<FoldSum, A>(0, n, [=](int64_t i) { return fn::exp_nonpositive(load(x[i]) - top); });
  const A log_total = logarithm ? fn::log(total) : total;
  ORTISAN_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const A centred = load(x[i]) - top;
    y[i] = store<T>(logarithm ? centred - log_total : fn::exp_nonpositive(centred) / total);
  }
}

template <bool logarithm, class T>
void softmax_columns(int64_t n, int64_t width, int64_t inner, const T* x, T* y) {
  using A = compute_t<T>;
  A top[fold_width], total[fold_width];
  fold_columns<FoldTop>(n, width, top, [=](int64_t i, int64_t j) { return load(x[i * inner + j]); });
  fold_columns<FoldSum>(n, width, total,
                        [&](int64_t i, int64_t j) { return fn::exp_nonpositive(load(x[i * inner + j]) - top[j]); });
  if constexpr (logarithm) {
    for (int64_t j = 0; j < width; ++j) total[j] = fn::log(total[j]);
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const A centred = load(x[i * inner + j]) - top[j];
      y[i * inner + j] = store<T>(logarithm ? centred - total[j] : fn::exp_nonpositive(centred) / total[j]);
    }
  }
}

template <bool logarithm, class T>
void softmax_any(Context& c, int64_t outer, int64_t n, int64_t inner, const T* x, T* y) {
  if (inner == 1) {
    parallel_ranges(c, outer, n * 4, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) softmax_row<logarithm>(n, x + o * n, y + o * n);
    });
  } else {
    for_column_blocks(c, outer, n * 4, inner, [&](int64_t o, int64_t column, int64_t width) {
      const int64_t at = o * n * inner + column;
      softmax_columns<logarithm>(n, width, inner, x + at, y + at);
    });
  }
}

// y = (x - mean) * scale * gamma + beta; gamma and beta may be null.
template <class T>
void scale_row(int64_t n, const T* x, compute_t<T> mean, compute_t<T> scale, const T* gamma, const T* beta, T* y) {
  if (gamma != nullptr && beta != nullptr) {
    ORTISAN_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = store<T>((load(x[i]) - mean) * scale * load(gamma[i]) + load(beta[i]));
  } else if (gamma != nullptr) {
    ORTISAN_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = store<T>((load(x[i]) - mean) * scale * load(gamma[i]));
  } else if (beta != nullptr) {
    ORTISAN_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = store<T>((load(x[i]) - mean) * scale + load(beta[i]));
  } else {
    ORTISAN_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = store<T>((load(x[i]) - mean) * scale);
  }
}

}  // namespace detail

// y = e^(x - max) / sum(e^(x - max)). y may be x.
template <class T>
void softmax(Context& c, int64_t outer, int64_t n, int64_t inner, const T* x, T* y) {
  detail::softmax_any<false>(c, outer, n, inner, x, y);
}

// y = x - max - log(sum(e^(x - max)))
template <class T>
void log_softmax(Context& c, int64_t outer, int64_t n, int64_t inner, const T* x, T* y) {
  detail::softmax_any<true>(c, outer, n, inner, x, y);
}

// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta over rows of n; gamma, beta, mean and inv_std may be null.
template <class T>
void layernorm(Context& c, int64_t outer, int64_t n, const T* x, const T* gamma, const T* beta, compute_t<T> epsilon,
               T* y, compute_t<T>* mean_out = nullptr, compute_t<T>* inv_std_out = nullptr) {
  using A = compute_t<T>;
  parallel_ranges(c, outer, n * 2, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const T* row = x + o * n;
      const A mean = fold_array<FoldSum, A>(row, n) / static_cast<A>(n);
      const A squares = fold_array<FoldSum, A>(row, n, [=](auto value) { return (value - mean) * (value - mean); });
      const A inv_std = A(1) / fn::sqrt(squares / static_cast<A>(n) + epsilon);
      detail::scale_row(n, row, mean, inv_std, gamma, beta, y + o * n);
      if (mean_out != nullptr) mean_out[o] = mean;
      if (inv_std_out != nullptr) inv_std_out[o] = inv_std;
    }
  });
}

// y = x / sqrt(mean(x^2) + epsilon) * gamma over rows of n; gamma and inv_rms may be null.
template <class T>
void rms_norm(Context& c, int64_t outer, int64_t n, const T* x, const T* gamma, compute_t<T> epsilon, T* y,
              compute_t<T>* inv_rms_out = nullptr) {
  using A = compute_t<T>;
  parallel_ranges(c, outer, n * 2, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const T* row = x + o * n;
      const A squares = fold_array<FoldSum, A>(row, n, [](auto value) { return value * value; });
      const A inv_rms = A(1) / fn::sqrt(squares / static_cast<A>(n) + epsilon);
      detail::scale_row(n, row, A(0), inv_rms, gamma, static_cast<const T*>(nullptr), y + o * n);
      if (inv_rms_out != nullptr) inv_rms_out[o] = inv_rms;
    }
  });
}

}  // namespace ortisan
