// Attention for few queries, as in decoding: the time goes into reading K and V, so both are read once, row by row, where they
// are, for all queries that share them.
//
// The queries of one key/value head are worked on together: scores are dot products along rows of K, a score's weight times a
// row of V is added to the product. Keys are cut into slices, each with a maximum, a sum and a product of its own, which are
// combined in the order of the slices. A task is one slice, or all slices of a head when there are many heads: that changes
// no bit of the result.
#pragma once

#include <cstdint>

#include "attention_thin_rows.h"

namespace ortisan::detail {

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
