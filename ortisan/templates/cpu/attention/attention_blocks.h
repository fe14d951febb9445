// Attention for many queries: a task works on a block of queries of one head and walks over blocks of keys, with both products
// in register tiles.
#pragma once

#include <cstdint>

#include "attention_rows.h"
#include "tile.h"
#include "transpose.h"

namespace ortisan::detail {

constexpr int64_t query_block = 66;

// One task: `rows` queries from `row`, `columns` output columns from `column`, of one batch and head.
struct AttentionTask {
  int64_t batch, head, row, rows, column, columns;
};

template <class T>
struct AttentionBlock {
  using C = compute_t<T>;
  static constexpr int64_t NR = panel_width<C>;

  C scores[query_block * key_block];  // [rows][key_block], later the weights
  C product[query_block * head_slice];  // [rows][columns rounded up to NR]
  C operand[key_block * head_slice];  // K^T or V in panels of NR columns
  C queries[is_small_float<T> ? query_block * head_slice : 1];
  C top[query_block];
  C total[query_block];

  const AttentionCall<T>& call;
  const AttentionTask& task;
  const int64_t columns_padded;

  AttentionBlock(const AttentionCall<T>& c, const AttentionTask& t)
      : call(c), task(t), columns_padded(ceil_quotient(t.columns, NR) * NR) {}

  Query query(int64_t i) const { return {task.batch, task.head, task.row + i}; }

  void run() {
    const QueryRange range = {task.batch, task.head, 1, task.row, task.rows};
    if (!walk(range, call.may_skip(range))) walk(range, false);
    for (int64_t i = 0; i < task.rows; ++i) {
      call.write(query(i), task.column, task.columns, top[i], total[i], product + i * columns_padded);
    }
  }

  // Over all keys. False when blocks were skipped that have weight.
  bool walk(const QueryRange& range, bool may_skip) {
    for (int64_t i = 0; i < task.rows; ++i) {
      top[i] = limits<C>::negative_infinity;
      total[i] = C(0);
    }
    for (int64_t i = 0; i < task.rows * columns_padded; ++i) product[i] = C(0);
    const int64_t end = call.visible_keys(task.row + task.rows - 1);
    for (int64_t key = 0; key < end; key += key_block) {
      const int64_t keys = min_of(key_block, end - key);
      if (may_skip && !call.any_sees(range, key, key + keys)) continue;
      compute_scores(key, keys);
      for (int64_t i = 0; i < task.rows; ++i) {
        C* row = scores + i * key_block;
        call.finish_scores(query(i), key, keys, row);
        weigh(row, call.padded(keys), top[i], total[i], product + i * columns_padded, columns_padded);
      }
      add_values(key, keys);
    }
    bool settled = true;
    for (int64_t i = 0; i < task.rows && may_skip; ++i) settled = settled && call.is_settled(top[i]);
    return settled;
  }

  // Panel p of operand = `columns` keys from k on, transposed; zeros in the columns that are left.
  void pack_keys(int64_t depth, int64_t columns, const T* k, int64_t p) {
    C* panel = operand + p * depth * NR;
    if constexpr (is_small_float<T>) {
      for (int64_t e = 0; e < depth; ++e) {
        for (int64_t j = 0; j < columns; ++j) panel[e * NR + j] = load(k[j * call.k_stride.row + e]);
      }
    } else {
      transpose_into(depth, columns, k, call.k_stride.row, panel, NR);
    }
    for (int64_t e = 0; e < depth && columns < NR; ++e) {
      for (int64_t j = columns; j < NR; ++j) panel[e * NR + j] = C(0);
    }
  }

  // scores[i][j] = q_i . k_j, for the padded number of keys.
  void compute_scores(int64_t key, int64_t keys) {
    const int64_t panels = ceil_quotient(keys, NR);
    if (call.shape.D == 0) {
      for (int64_t i = 0; i < query_block * key_block; ++i) scores[i] = C(0);
    }
    const int64_t kv_head = task.head / call.shape.group;
    for (int64_t d = 0; d < call.shape.D; d += head_slice) {
      const int64_t depth = min_of(head_slice, call.shape.D - d);
      const T* q = call.row_of(call.q, call.q_stride, task.batch, task.head, task.row) + d;
      const T* k = call.row_of(call.k, call.k_stride, task.batch, kv_head, key) + d;
      for (int64_t p = 0; p < panels; ++p)
        pack_keys(depth, min_of(NR, keys - p * NR), k + p * NR * call.k_stride.row, p);
      const C* a;
      int64_t lda;
      if constexpr (is_small_float<T>) {
        for (int64_t i = 0; i < task.rows; ++i) {
          for (int64_t e = 0; e < depth; ++e) queries[i * depth + e] = load(q[i * call.q_stride.row + e]);
        }
        a = queries;
        lda = depth;
      } else {
        a = q;
        lda = call.q_stride.row;
      }
      for (int64_t p = 0; p < panels; ++p) {
        add_tiles<C>(task.rows, depth, a, lda, operand + p * depth * NR, NR, scores + p * NR, key_block, d > 0);
      }
    }
  }

  // product += weights * V.
  void add_values(int64_t key, int64_t keys) {
    const int64_t kv_head = task.head / call.shape.group;
    const T* v = call.row_of(call.v, call.v_stride, task.batch, kv_head, key) + task.column;
    for (int64_t e = 0; e < columns_padded; e += NR) {
      const int64_t width = min_of(NR, task.columns - e);
      if constexpr (!is_small_float<T>) {
        if (width == NR) {
          add_tiles<C>(task.rows, keys, scores, key_block, v + e, call.v_stride.row, product + e, columns_padded, true);
          continue;
        }
      }
      for (int64_t j = 0; j < keys; ++j) {
        for (int64_t l = 0; l < NR; ++l) {
          operand[j * NR + l] = l < width ? load(v[j * call.v_stride.row + e + (l < width ? l : 0)]) : C(0);
        }
      }
      add_tiles<C>(task.rows, keys, scores, key_block, operand, NR, product + e, columns_padded, true);
    }
  }
};

template <class T>
void attention_blocks(Context& c, const AttentionCall<T>& call) {
  const AttentionShape& shape = call.shape;
  const int64_t blocks = ceil_quotient(shape.S, query_block);
  const int64_t slices = ceil_quotient(shape.Dv, head_slice);
  const int64_t tasks = shape.B * shape.H * blocks * slices;
  const int64_t work = shape.S / blocks * max_of(1, shape.T) * (shape.D + shape.Dv) / 16;
  parallel_ranges(c, tasks, work, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slice = t % slices;
      const int64_t block = t / slices % blocks;
      const int64_t head = t / slices / blocks;
      const int64_t column = slice * head_slice;
      const AttentionTask task = {head / shape.H,
                                  head % shape.H,
                                  block * (shape.S / blocks) + min_of(block, shape.S % blocks),
                                  shape.S / blocks + (block < shape.S % blocks ? 1 : 0),
                                  column,
                                  min_of(head_slice, shape.Dv - column)};
      AttentionBlock<T>(call, task).run();
    }
  });
}

}  // namespace ortisan::detail
