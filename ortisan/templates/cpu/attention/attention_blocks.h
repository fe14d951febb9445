// Attention for many queries: a task works on a block of queries of one head and walks over blocks of keys, with both products
// in register tiles. Where tiles multiply bfloat16, the weights are rounded to it.
#pragma once

#include <cstdint>

#include "attention_rows.h"
#include "panels.h"
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
  using P = factor_t<T>;
  static constexpr bool converts = !std::is_same_v<T, P>, rounds = !std::is_same_v<C, P>;
  static constexpr int64_t NR = panel_width<P>;

  C scores[query_block * key_block];  // [rows][key_block], later the weights
  C product[query_block * head_slice];  // [rows][columns rounded up to NR]
  P operand[key_block * head_slice];  // K^T or V in panels of NR columns
  P queries[converts ? query_block * head_slice : 1];
  P rounded[rounds ? query_block * key_block : 1];  // the weights
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
        if constexpr (rounds) {
          for (int64_t j = 0; j < keys; ++j) rounded[i * key_block + j] = store<P>(row[j]);
        }
      }
      add_values(key, keys);
    }
    bool settled = true;
    for (int64_t i = 0; i < task.rows && may_skip; ++i) settled = settled && call.is_settled(top[i]);
    return settled;
  }

  // The panel = `columns` keys from k on, transposed; zeros in the columns that are left.
  void pack_keys(int64_t depth, int64_t columns, const T* k, P* panel) {
    if constexpr (rounds) {
      pack_pairs(depth, columns, k, 1, call.k_stride.row, panel);
    } else {
      if constexpr (converts) {
        for (int64_t e = 0; e < depth; ++e) {
          for (int64_t j = 0; j < columns; ++j) panel[e * NR + j] = load(k[j * call.k_stride.row + e]);
        }
      } else {
        transpose_into(depth, columns, k, call.k_stride.row, panel, NR);
      }
      for (int64_t e = 0; e < depth && columns < NR; ++e) {
        for (int64_t j = columns; j < NR; ++j) panel[e * NR + j] = P(0);
      }
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
      const int64_t depth = min_of(head_slice, call.shape.D - d), each = panel_depth<P>(depth) * NR;
      const T* q = call.row_of(call.q, call.q_stride, task.batch, task.head, task.row) + d;
      const T* k = call.row_of(call.k, call.k_stride, task.batch, kv_head, key) + d;
      for (int64_t p = 0; p < panels; ++p)
        pack_keys(depth, min_of(NR, keys - p * NR), k + p * NR * call.k_stride.row, operand + p * each);
      const P* a;
      int64_t lda;
      if constexpr (converts) {
        for (int64_t i = 0; i < task.rows; ++i) {
          for (int64_t e = 0; e < depth; ++e) queries[i * depth + e] = load(q[i * call.q_stride.row + e]);
        }
        a = queries;
        lda = depth;
      } else {
        a = q;
        lda = call.q_stride.row;
      }
      for (int64_t p = 0; p < panels; ++p)
        add_tiles<P>(task.rows, depth, a, lda, operand + p * each, NR, scores + p * NR, key_block, d > 0);
    }
  }

  // product += weights * V.
  void add_values(int64_t key, int64_t keys) {
    const int64_t kv_head = task.head / call.shape.group;
    const T* v = call.row_of(call.v, call.v_stride, task.batch, kv_head, key) + task.column;
    for (int64_t e = 0; e < columns_padded; e += NR) {
      const int64_t width = min_of(NR, task.columns - e);
      const P* panel = operand;
      int64_t row = NR;
      if constexpr (rounds) {
        pack_pairs(keys, width, v + e, call.v_stride.row, 1, operand);
      } else if (!converts && width == NR) {
        panel = reinterpret_cast<const P*>(v + e);
        row = call.v_stride.row;
      } else {
        for (int64_t j = 0; j < keys; ++j) {
          for (int64_t l = 0; l < NR; ++l) {
            operand[j * NR + l] = l < width ? load(v[j * call.v_stride.row + e + (l < width ? l : 0)]) : P(0);
          }
        }
      }
      add_tiles<P>(task.rows, keys, weights(), key_block, panel, row, product + e, columns_padded, true);
    }
  }

  const P* weights() const {
    if constexpr (rounds)
      return rounded;
    else
      return scores;
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
