// Attention for few queries, as in decoding: the time goes into reading K and V, so both are read once, row by row, where they
// are, for all queries that share them.
//
// The queries of one key/value head are worked on together: scores are dot products along rows of K, a score's weight times a
// row of V is added to the product. Keys are cut into slices, each with a maximum, a sum and a product of its own, which are
// combined in the order of the slices. A task is one slice, or all slices of a head when there are many heads: that changes
// no bit of the result.
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

// The maximum, the sum and the product of each query over some of the keys.
template <class C>
struct ThinSums {
  alignas(64) C product[thin_rows * head_slice];
  C top[thin_rows], total[thin_rows];

  void start(int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r) {
      top[r] = limits<C>::negative_infinity;
      total[r] = C(0);
      for (int64_t e = 0; e < columns; ++e) product[r * head_slice + e] = C(0);
    }
  }

  // Takes in what other keys gave for query r.
  void add(int64_t r, C other_top, C other_total, const C* other, int64_t columns) {
    const C largest = Larger::fold(top[r], other_top), reference = softmax_reference(largest);
    const C own = fn::exp_nonpositive(top[r] - reference), others = fn::exp_nonpositive(other_top - reference);
    C* sums = product + r * head_slice;
    total[r] = total[r] * own + other_total * others;
    for (int64_t e = 0; e < columns; ++e) sums[e] = sums[e] * own + other[e] * others;
    top[r] = largest;
  }
};

// All queries of one key/value head, `columns` output columns from `column`.
struct ThinTask {
  int64_t batch, kv_head, column, columns;
};

template <class T>
struct AttentionThin {
  using C = compute_t<T>;

  alignas(64) C queries[thin_rows * head_slice];
  alignas(64) C scores[thin_rows * thin_slice];  // later the weights
  ThinSums<C> sums;  // of one slice

  const AttentionCall<T>& call;
  const ThinTask task;
  const int64_t rows;
  const QueryRange range;

  AttentionThin(const AttentionCall<T>& c, const ThinTask& t)
      : call(c), task(t), rows(c.shape.S * c.shape.group),
        range{t.batch, t.kv_head * c.shape.group, c.shape.group, 0, c.shape.S} {
    if (call.shape.D <= head_slice) load_queries(0, call.shape.D);
  }

  Query query(int64_t r) const { return {task.batch, range.head + r / call.shape.S, r % call.shape.S}; }

  void load_queries(int64_t d, int64_t depth) {
    const int64_t padded = ceil_quotient(depth, lane_count<C>) * lane_count<C>;
    for (int64_t r = 0; r < rows; ++r) {
      const Query at = query(r);
      const T* q = call.row_of(call.q, call.q_stride, at.batch, at.head, at.row) + d;
      for (int64_t e = 0; e < depth; ++e) queries[r * head_slice + e] = load(q[e]);
      for (int64_t e = depth; e < padded; ++e) queries[r * head_slice + e] = C(0);
    }
  }

  void run_slice(int64_t slice, bool may_skip) {
    sums.start(rows, task.columns);
    const int64_t first = slice * thin_slice;
    const int64_t keys = min_of(thin_slice, call.visible_keys(call.shape.S - 1) - first);
    if (keys <= 0) return;
    int64_t runs[thin_slice / key_block][2];  // keys that are not hidden, in whole blocks: begin and end
    int64_t count = 0;
    for (int64_t at = 0; at < keys; at += key_block) {
      const int64_t end = min_of(at + key_block, keys);
      if (may_skip && !call.any_sees(range, first + at, first + end)) continue;
      if (count == 0 || runs[count - 1][1] != at) runs[count++][0] = at;
      runs[count - 1][1] = end;
    }
    for (int64_t i = 0; i < count; ++i)
      compute_scores(first + runs[i][0], runs[i][1] - runs[i][0], scores + runs[i][0]);
    const int64_t ahead = 2 * thin_group<T>;
    for (int64_t r = 0; r < rows; ++r) {
      // Memory has a rest now: it can fetch what comes next.
      if (r * ahead < keys) fetch(values(first + r * ahead, ahead), task.columns);
      C* row = scores + r * thin_slice;
      call.finish_scores(query(r), first, keys, row);
      for (int64_t i = 0, at = 0; i <= count; ++i) {
        for (const int64_t end = i < count ? runs[i][0] : keys; at < end; ++at) row[at] = limits<C>::negative_infinity;
        if (i < count) at = runs[i][1];
      }
      weigh(row, call.padded(keys), sums.top[r], sums.total[r], sums.product, 0);
    }
    for (int64_t i = 0; i < count; ++i) add_values(first + runs[i][0], runs[i][1] - runs[i][0], scores + runs[i][0]);
    if (first + thin_slice < call.shape.T) fetch(keys_of(first + thin_slice, ahead), call.shape.D);
  }

  // Rows that lie at a stretch.
  struct Stretch {
    const T* at;
    int64_t stride, count;
  };

  // Up to `count` rows of the task's head, from their past if they are there.
  Stretch stretch(const T* data, const HeadStrides& stride, const PastRows<T>& past, int64_t row, int64_t count) const {
    if (row < past.rows) {
      return {call.row_of(past.data, past.stride, task.batch, task.kv_head, row), past.stride.row,
              min_of(count, past.rows - row)};
    }
    return {call.row_of(data, stride, task.batch, task.kv_head, row), stride.row, count};
  }

  Stretch keys_of(int64_t key, int64_t count) const { return stretch(call.k, call.k_stride, call.k_past, key, count); }
  Stretch values(int64_t key, int64_t count) const {
    Stretch found = stretch(call.v, call.v_stride, call.v_past, key, count);
    found.at += task.column;
    return found;
  }

  ORTISAN_INLINE static void fetch(const Stretch& some, int64_t length) {
    fetch_rows(some.at, some.stride, some.count, length);
  }

  void compute_scores(int64_t key, int64_t keys, C* to) {
    const int64_t D = call.shape.D;
    for (int64_t d = 0; d < max_of(1, D); d += head_slice) {
      const int64_t depth = min_of(head_slice, D - d);
      if (D > head_slice) load_queries(d, depth);
      for (int64_t done = 0; done < keys;) {
        const Stretch k = keys_of(key + done, keys - done);
        thin_passes(rows, [&](int64_t r, auto R) {
          C* own = to + r * thin_slice + done;
          thin_dots<T, R>(k.count, depth, queries + r * head_slice, k.at + d, k.stride, own, d > 0);
        });
        done += k.count;
      }
    }
  }

  void add_values(int64_t key, int64_t keys, const C* weights) {
    for (int64_t done = 0; done < keys;) {
      const Stretch v = values(key + done, keys - done);
      thin_passes(rows, [&](int64_t r, auto R) {
        const C* own = weights + r * thin_slice + done;
        thin_values<T, R>(v.count, task.columns, own, v.at, v.stride, sums.product + r * head_slice);
      });
      done += v.count;
    }
  }

  bool is_settled(const ThinSums<C>& all) const {
    for (int64_t r = 0; r < rows; ++r) {
      if (!call.is_settled(all.top[r])) return false;
    }
    return true;
  }

  void write(const ThinSums<C>& all) const {
    for (int64_t r = 0; r < rows; ++r) {
      call.write(query(r), task.column, task.columns, all.top[r], all.total[r], all.product + r * head_slice);
    }
  }

  // All slices, one after the other.
  void run(int64_t slices, bool may_skip) {
    ThinSums<C> all;
    all.start(rows, task.columns);
    for (int64_t slice = 0; slice < slices; ++slice) {
      run_slice(slice, may_skip);
      for (int64_t r = 0; r < rows; ++r) {
        all.add(r, sums.top[r], sums.total[r], sums.product + r * head_slice, task.columns);
      }
    }
    if (may_skip && !is_settled(all)) return run(slices, false);
    write(all);
  }

  // One slice, whose sums are kept for `finish`: per query the maximum, the sum and the product.
  void run_alone(int64_t slice, C* kept) {
    run_slice(slice, call.may_skip(range));
    for (int64_t r = 0; r < rows; ++r) {
      C* to = kept + r * (task.columns + 2);
      to[0] = sums.top[r];
      to[1] = sums.total[r];
      for (int64_t e = 0; e < task.columns; ++e) to[2 + e] = sums.product[r * head_slice + e];
    }
  }

  // What the slices kept, `size` elements each.
  void finish(int64_t slices, const C* kept, int64_t size) {
    sums.start(rows, task.columns);
    for (int64_t slice = 0; slice < slices; ++slice) {
      for (int64_t r = 0; r < rows; ++r) {
        const C* from = kept + slice * size + r * (task.columns + 2);
        sums.add(r, from[0], from[1], from + 2, task.columns);
      }
    }
    if (call.may_skip(range) && !is_settled(sums)) return run(slices, false);
    write(sums);
  }
};

template <class T>
void attention_thin(Context& c, const AttentionCall<T>& call) {
  using C = compute_t<T>;
  const AttentionShape& shape = call.shape;
  const int64_t kv_heads = shape.H / shape.group, rows = shape.S * shape.group;
  const int64_t columns = min_of(head_slice, shape.Dv), column_slices = ceil_quotient(shape.Dv, head_slice);
  const int64_t tasks = shape.B * kv_heads * column_slices, slices = ceil_quotient(shape.T, thin_slice);
  const auto task_of = [&](int64_t t) {
    const int64_t column = t % column_slices * head_slice, head = t / column_slices;
    return ThinTask{head / kv_heads, head % kv_heads, column, min_of(head_slice, shape.Dv - column)};
  };
  const int64_t kept_size = rows * (columns + 2);
  const int64_t work = min_of(shape.T, thin_slice) * (shape.D + columns) / 2;
  if (slices <= 1 || tasks * slices * kept_size > thin_buffer) {
    return parallel_ranges(c, tasks, slices * work, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        AttentionThin<T> thin(call, task_of(t));
        thin.run(slices, call.may_skip(thin.range));
      }
    });
  }
  C kept[thin_buffer];
  parallel_ranges(c, tasks * slices, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      AttentionThin<T>(call, task_of(i / slices)).run_alone(i % slices, kept + i * kept_size);
    }
  });
  for (int64_t t = 0; t < tasks; ++t) {
    AttentionThin<T>(call, task_of(t)).finish(slices, kept + t * slices * kept_size, kept_size);
  }
}

}  // namespace ortisan::detail
