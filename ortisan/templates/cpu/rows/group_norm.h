// Normalisation of x[N,P,C] over the P places and the C / groups channels of each group.
//
// Places are taken in chunks that stay in the cache: for each channel of a chunk its mean, and the squares around that.
// Chunks and channels are joined in a fixed order: two sets of values whose means are d apart have the squares of both
// around their common mean, and d^2 n m / (n + m) more.
#pragma once

#include <cstdint>

#include "fold.h"
#include "loops.h"

namespace ortisan {
namespace detail {

// Mean of n values and the sum of their squares around it.
template <class A>
struct Moments {
  A n, mean, squares;

  void join(const Moments& other) {
    if (other.n == A(0)) return;
    const A all = n + other.n, d = other.mean - mean, share = other.n / all;
    mean += d * share;
    squares += other.squares + d * d * n * share;
    n = all;
  }
};

}  // namespace detail

// The sizes; `places` of a chunk, and `chunks` of an image.
struct GroupNormShape {
  int64_t N, P, C, groups, places, chunks;
};

// `moments` has room for the mean and the squares of each channel of each chunk, [N][chunks][2][C], and behind them for the mean
// and the factor of each channel, [N][2][C].
template <class T>
void group_norm(Context& c, const GroupNormShape& s, const T* x, const T* gamma, const T* beta, compute_t<T> epsilon,
                T* y, compute_t<T>* moments) {
  using A = compute_t<T>;
  if (s.N <= 0 || s.P <= 0 || s.C <= 0) return;
  const auto places_of = [&](int64_t chunk) { return min_of(s.places, s.P - chunk * s.places); };
  c.parallel(s.N * s.chunks, [&](int64_t task) {
    const int64_t places = places_of(task % s.chunks);
    const T* from = x + (task / s.chunks * s.P + task % s.chunks * s.places) * s.C;
    A *mean = moments + task * 2 * s.C, *squares = mean + s.C;
    for (int64_t k = 0; k < s.C; k += fold_width) {
      const int64_t width = min_of(fold_width, s.C - k);
      fold_columns<FoldSum>(places, width, mean + k, [&](int64_t i, int64_t j) { return load(from[i * s.C + k + j]); });
      for (int64_t j = 0; j < width; ++j) mean[k + j] /= static_cast<A>(places);
      fold_columns<FoldSum>(places, width, squares + k, [&](int64_t i, int64_t j) {
        const A d = load(from[i * s.C + k + j]) - mean[k + j];
        return d * d;
      });
    }
  });
  A* totals = moments + s.N * s.chunks * 2 * s.C;
  const int64_t channels = s.C / s.groups;
  parallel_ranges(c, s.N * s.groups, s.chunks * channels, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t image = group / s.groups, first = group % s.groups * channels;
      detail::Moments<A> all = {A(0), A(0), A(0)};
      for (int64_t chunk = 0; chunk < s.chunks; ++chunk) {
        const A* mean = moments + (image * s.chunks + chunk) * 2 * s.C;
        detail::Moments<A> part = {A(0), A(0), A(0)};
        for (int64_t k = first; k < first + channels; ++k)
          part.join({static_cast<A>(places_of(chunk)), mean[k], mean[s.C + k]});
        all.join(part);
      }
      const A factor = A(1) / fn::sqrt(all.squares / all.n + epsilon);
      A* total = totals + image * 2 * s.C;
      for (int64_t k = first; k < first + channels; ++k) {
        total[k] = all.mean;
        total[s.C + k] = factor * load(gamma[k]);
      }
    }
  });
  parallel_ranges(c, s.N * s.P, s.C, [&](int64_t begin, int64_t end) {
    for (int64_t place = begin; place < end; ++place) {
      const A *mean = totals + place / s.P * 2 * s.C, *factor = mean + s.C;
      const T* from = x + place * s.C;
      T* to = y + place * s.C;
      ORTISAN_INDEPENDENT
      for (int64_t k = 0; k < s.C; ++k) to[k] = store<T>((load(from[k]) - mean[k]) * factor[k] + load(beta[k]));
    }
  });
}

}  // namespace ortisan
