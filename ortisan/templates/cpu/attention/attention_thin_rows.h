// Rows of K and V for few queries: groups of rows fetched ahead, dot products along rows of K, weighted sums of rows of V.
#pragma once

#include <cstdint>

#include "attention_rows.h"
#include "lanes.h"

namespace ortisan::detail {

constexpr int64_t thin_slice = 512;  // keys that are read at a stretch, first K and then V
constexpr int64_t thin_buffer = 32768;  // elements that the slices' sums may take
static_assert(thin_slice % key_block == 0);

// Rows that are fetched, and those that are worked on before the next are: about a kilobyte or two.
template <class T>
constexpr int64_t thin_group = 16 / int64_t(sizeof(T));

// One query takes so little work per byte that memory is the limit, and it gives more when several places are read in turn.
// With more queries the hardware's own prefetching stays behind: rows are read in one place and fetched ahead.
template <int R>
constexpr int64_t thin_places = R == 1 ? 4 : 1;

// Calls f(row, count) for groups of rows, taken from these places in turn.
template <int64_t places, class F>
ORTISAN_INLINE inline void for_groups(int64_t rows, int64_t group, const F& f) {
  const int64_t apart = places > 1 ? rows / (places * group) * group : 0;
  for (int64_t j = 0; j < apart; j += group) {
    for (int64_t i = 0; i < places; ++i) f(i * apart + j, group);
  }
  for (int64_t j = places * apart; j < rows; j += group) f(j, min_of(group, rows - j));
}

// Fetches rows into the cache, in their order. GCC drops a call of a function that does nothing else, hence inline.
template <class T>
ORTISAN_INLINE inline void fetch_rows(const T* from, int64_t stride, int64_t count, int64_t length) {
  if (stride == length) {
    length *= count;
    count = 1;
  }
  for (int64_t j = 0; j < count; ++j) {
    const char* row = reinterpret_cast<const char*>(from + j * stride);
    for (int64_t b = 0; b < length * int64_t(sizeof(T)); b += 64) __builtin_prefetch(row + b);
  }
}

// sums[r][i] = the lanes that add up to q_r . k_i, for R queries and J keys. More sums than one for each, where there are few,
// keep additions from waiting for each other.
template <class T, int R, int J>
ORTISAN_INLINE inline void thin_products(int64_t depth, const compute_t<T>* q, const T* k, int64_t stride,
                                         lanes_t<compute_t<T>> (&sums)[R][J]) {
  using V = lanes_t<compute_t<T>>;
  constexpr int64_t lanes = lane_count<compute_t<T>>;
  constexpr int parts = R * J == 1 ? 4 : R * J == 2 ? 2 : 1;
  V s[R][J][parts] = {};
  int64_t e = 0;
  for (; e + parts * lanes <= depth; e += parts * lanes) {
    ORTISAN_UNROLL(4)
    for (int p = 0; p < parts; ++p) {
      V row[J];
      ORTISAN_UNROLL(2)
      for (int i = 0; i < J; ++i) {
        row[i] = load_lanes<T>(k + i * stride + e + p * lanes);
        if (R > 1) keep_in_register(row[i]);
      }
      ORTISAN_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        V own = read_unaligned<V>(q + r * head_slice + e + p * lanes);
        if (J > 1) keep_in_register(own);
        ORTISAN_UNROLL(2)
        for (int i = 0; i < J; ++i) s[r][i][p] += own * row[i];
      }
    }
  }
  for (; e < depth; e += lanes) {
    ORTISAN_UNROLL(2)
    for (int i = 0; i < J; ++i) {
      const T* at = k + i * stride + e;
      const V row = depth - e >= lanes ? load_lanes<T>(at) : load_some_lanes<T>(at, depth - e);
      ORTISAN_UNROLL(4)
      for (int r = 0; r < R; ++r) s[r][i][0] += read_unaligned<V>(q + r * head_slice + e) * row;
    }
  }
  ORTISAN_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    ORTISAN_UNROLL(2)
    for (int i = 0; i < J; ++i) {
      sums[r][i] = s[r][i][0];
      if constexpr (parts == 2) sums[r][i] += s[r][i][1];
      if constexpr (parts == 4) sums[r][i] = (s[r][i][0] + s[r][i][1]) + (s[r][i][2] + s[r][i][3]);
    }
  }
}

// scores[r][j] = q_r . k_j (added to it with `more`) for R queries, rows of q `head_slice` apart and padded with zeros.
template <class T, int R>
[[gnu::noinline]] void thin_dots(int64_t keys, int64_t depth, const compute_t<T>* q, const T* k, int64_t stride,
                                 compute_t<T>* scores, bool more) {
  using C = compute_t<T>;
  constexpr int J = R >= 3 ? 2 : 1;
  for_groups<thin_places<R>>(keys / 4 * 4, 4, [=](int64_t j, int64_t) ORTISAN_INLINE {
    if (R > 1) fetch_rows(k + stride * (j + thin_group<T>), stride, 4, depth);
    lanes_t<C> sums[R][4];
    ORTISAN_UNROLL(4)
    for (int i = 0; i < 4; i += J) {
      lanes_t<C> s[R][J];
      thin_products<T, R, J>(depth, q, k + (j + i) * stride, stride, s);
      ORTISAN_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        ORTISAN_UNROLL(2)
        for (int n = 0; n < J; ++n) sums[r][i + n] = s[r][n];
      }
    }
    ORTISAN_UNROLL(4)
    for (int r = 0; r < R; ++r) sum_four<C>(sums[r], scores + r * thin_slice + j, more);
  });
  for (int64_t j = keys / 4 * 4; j < keys; ++j) {
    lanes_t<C> s[R][1];
    thin_products<T, R, 1>(depth, q, k + j * stride, stride, s);
    for (int r = 0; r < R; ++r) {
      C& score = scores[r * thin_slice + j];
      score = sum_lanes(s[r][0]) + (more ? score : C(0));
    }
  }
}

// product[r][0 .. W vectors) += weights[r][j] * v_j for R queries.
template <class T, int R, int W>
inline void thin_strip(int64_t keys, const compute_t<T>* weights, const T* v, int64_t stride, compute_t<T>* product) {
  using C = compute_t<T>;
  using V = lanes_t<C>;
  constexpr int64_t lanes = lane_count<C>;
  V s[R][W];
  ORTISAN_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    ORTISAN_UNROLL(8)
    for (int w = 0; w < W; ++w) s[r][w] = read_unaligned<V>(product + r * head_slice + w * lanes);
  }
  for (int64_t j = 0; j < keys; ++j) {
    ORTISAN_UNROLL(8)
    for (int w = 0; w < W; ++w) {
      V row = load_lanes<T>(v + j * stride + w * lanes);
      if (R > 1) keep_in_register(row);
      ORTISAN_UNROLL(4)
      for (int r = 0; r < R; ++r) s[r][w] += weights[r * thin_slice + j] * row;
    }
  }
  ORTISAN_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    ORTISAN_UNROLL(8)
    for (int w = 0; w < W; ++w) __builtin_memcpy(product + r * head_slice + w * lanes, &s[r][w], sizeof(V));
  }
}

// product[r] += weights[r] V for R queries, rows of the product `head_slice` apart. Wide rows are read in strips, a few rows at
// a time, so that memory is still read in its order.
template <class T, int R>
[[gnu::noinline]] void thin_values(int64_t keys, int64_t columns, const compute_t<T>* weights, const T* v,
                                   int64_t stride, compute_t<T>* product) {
  using C = compute_t<T>;
  constexpr int64_t lanes = lane_count<C>;
  constexpr int W = R == 1 ? 8 : R <= 3 ? 4 : 2;
  for_groups<thin_places<R>>(keys, thin_group<T>, [=](int64_t j, int64_t count) ORTISAN_INLINE {
    const C* weight = weights + j;
    const T* row = v + j * stride;
    if (R > 1) fetch_rows(row + thin_group<T> * stride, stride, thin_group<T>, columns);
    int64_t e = 0;
    for (; e + W * lanes <= columns; e += W * lanes) thin_strip<T, R, W>(count, weight, row + e, stride, product + e);
    for (; e + lanes <= columns; e += lanes) thin_strip<T, R, 1>(count, weight, row + e, stride, product + e);
    for (int64_t i = 0; i < count && e < columns; ++i) {
      for (int r = 0; r < R; ++r) {
        for (int64_t l = e; l < columns; ++l) {
          product[r * head_slice + l] += weight[r * thin_slice + i] * load(row[i * stride + l]);
        }
      }
    }
  });
}

// Calls f.run<R>(r) for as many rows R <= 4 at a time as keep the sums in registers.
template <class F>
inline void thin_passes(int64_t rows, const F& f) {
  for (int64_t r = 0; r < rows;) {
    const int64_t left = rows - r;
    const int64_t now = left <= 4 ? left : (left >= 7 ? 4 : 3);
    if (now == 1) f(r, std::integral_constant<int, 1>{});
    if (now == 2) f(r, std::integral_constant<int, 2>{});
    if (now == 3) f(r, std::integral_constant<int, 3>{});
    if (now == 4) f(r, std::integral_constant<int, 4>{});
    r += now;
  }
}

}  // namespace ortisan::detail
