// Scaled dot-product attention:  out = softmax(cap(scale * Q K^T) + mask) V  per batch and head, without a score matrix in memory.
//
// One task works on a block of queries of one head and walks over blocks of keys, keeping per query the running maximum m,
// the running sum l of e^(score - m), and the running product with V; when m grows, l and the product shrink by e^(m_old - m).
// All buffers are on the stack. Head sizes above the buffers are walked in slices: scores are added up over slices of D, and
// each slice of Dv is a task of its own.
#pragma once

#include <cstdint>

#include "fold.h"
#include "heads.h"
#include "loops.h"
#include "pieces.h"
#include "scalar.h"
#include "tile.h"
#include "transpose.h"
#include "types.h"

namespace ortisan {

// Queries [B, H, S, D], keys [B, H / group, T, D], values [B, H / group, T, Dv], output [B, H, S, Dv].
struct AttentionShape {
  int64_t B, H, S, T, D, Dv;
  int64_t group = 1;  // query heads that share one key/value head
  bool causal = false;  // query i sees the keys up to i + past only
  int64_t past = 0;
};

// What becomes of hidden keys and of rows that see nothing. Both zeros are for whole rows of the output.
template <class C>
struct AttentionRules {
  C hidden = limits<C>::lowest;  // the score of a key that a boolean mask hides
  bool empty_zero = false;  // a row whose scores are all -inf is 0, not NaN
  bool nan_zero = false;  // any row that would be NaN for its weights is 0
};

// Added to the scores [B, H, S, T] (additive: elements of the tensors' type), or chosen from them (boolean: false hides).
// Strides in elements, 0 to broadcast.
struct AttentionMask {
  enum Kind : uint8_t { none, additive, boolean } kind = none;
  const void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
};

namespace detail {

constexpr int64_t query_block = 66;
constexpr int64_t key_block = 64;
static_assert(key_block % fold_lanes == 0);
constexpr int64_t head_slice = 256;

// The tensors and constants of one call.
template <class T>
struct AttentionCall {
  AttentionShape shape;
  const T* q;
  HeadStrides q_stride;
  const T* k;
  HeadStrides k_stride;
  const T* v;
  HeadStrides v_stride;
  AttentionMask mask;
  compute_t<T> scale;
  compute_t<T> softcap;
  AttentionRules<compute_t<T>> rules;
  T* out;
  HeadStrides out_stride;
};

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

  const T* row_of(const T* base, const HeadStrides& stride, int64_t head, int64_t row) const {
    return base + task.batch * stride.batch + head * stride.head + row * stride.row;
  }

  void run() {
    for (int64_t i = 0; i < task.rows; ++i) {
      top[i] = limits<C>::negative_infinity;
      total[i] = C(0);
    }
    for (int64_t i = 0; i < task.rows * columns_padded; ++i) product[i] = C(0);
    const int64_t end = visible_keys(task.rows - 1);
    for (int64_t key = 0; key < end; key += key_block) {
      const int64_t keys = min_of(key_block, end - key);
      compute_scores(key, keys);
      for (int64_t i = 0; i < task.rows; ++i) {
        add_mask(i, key, keys);
        weigh(i, padded(keys));
      }
      add_values(key, keys);
    }
    write();
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

  // scores[i][j] = scale * q_i . k_j, for the padded number of keys.
  void compute_scores(int64_t key, int64_t keys) {
    const int64_t panels = ceil_quotient(keys, NR);
    if (call.shape.D == 0) {
      for (int64_t i = 0; i < query_block * key_block; ++i) scores[i] = C(0);
    }
    const int64_t kv_head = task.head / call.shape.group;
    for (int64_t d = 0; d < call.shape.D; d += head_slice) {
      const int64_t depth = min_of(head_slice, call.shape.D - d);
      const T* q = row_of(call.q, call.q_stride, task.head, task.row) + d;
      const T* k = row_of(call.k, call.k_stride, kv_head, key) + d;
      for (int64_t p = 0; p < panels; ++p) pack_keys(depth, min_of(NR, keys - p * NR), k + p * NR * call.k_stride.row, p);
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

  // Scales, caps and masks the scores of query i. Keys that it may not see, and those that fill the row up, get -inf.
  void add_mask(int64_t i, int64_t key, int64_t keys) {
    const AttentionMask& mask = call.mask;
    C* row = scores + i * key_block;
    C scale = call.scale;
    if (call.softcap > C(0)) {
      const C cap = call.softcap;
      for (int64_t j = 0; j < keys; ++j) row[j] = cap * fn::tanh(row[j] * scale / cap);
      scale = C(1);
    }
    const int64_t offset =
        task.batch * mask.batch + task.head * mask.head + (task.row + i) * mask.row + key * mask.column;
    if (mask.kind == AttentionMask::additive) {
      const T* data = static_cast<const T*>(mask.data) + offset;
      const int64_t step = mask.column;
      if (step == 1) {
        ORTISAN_INDEPENDENT
        for (int64_t j = 0; j < keys; ++j) row[j] = row[j] * scale + load(data[j]);
      } else {
        ORTISAN_INDEPENDENT
        for (int64_t j = 0; j < keys; ++j) row[j] = row[j] * scale + load(data[j * step]);
      }
    } else if (mask.kind == AttentionMask::boolean) {
      const bool* data = static_cast<const bool*>(mask.data) + offset;
      const int64_t step = mask.column;
      const C hidden = call.rules.hidden;
      ORTISAN_INDEPENDENT
      for (int64_t j = 0; j < keys; ++j) row[j] = load(data[j * step]) ? row[j] * scale : hidden;
    } else {
      for (int64_t j = 0; j < keys; ++j) row[j] *= scale;
    }
    const int64_t seen = min_of(keys, max_of(0, visible_keys(i) - key));
    for (int64_t j = seen; j < padded(keys); ++j) row[j] = limits<C>::negative_infinity;
  }

  // How many keys the query may see, from the first on.
  int64_t visible_keys(int64_t i) const {
    return call.shape.causal ? min_of(call.shape.T, task.row + i + call.shape.past + 1) : call.shape.T;
  }

  // A row of scores is folded in whole lanes.
  static int64_t padded(int64_t keys) { return ceil_quotient(keys, fold_lanes) * fold_lanes; }

  // The larger one; a NaN is passed over, since it comes back in the sum of the weights.
  struct Larger {
    template <class V>
    static V fold(V best, V candidate) {
      return candidate > best ? candidate : best;
    }
  };

  // Turns `width` scores of query i into weights e^(score - m) and updates m, l and the product so far.
  void weigh(int64_t i, int64_t width) {
    C* row = scores + i * key_block;
    const C largest = Larger::fold(top[i], fold_buffer<Larger>(row, width));
    // While every score is -inf the differences to it would be NaN; the weights are 0 then.
    const C reference = largest == limits<C>::negative_infinity ? C(0) : largest;
    for (int64_t j = 0; j < width; ++j) row[j] = fn::exp_nonpositive(row[j] - reference);
    const C sum = fold_buffer<FoldSum>(row, width);
    const C shrink = fn::exp_nonpositive(top[i] - reference);
    if (shrink != C(1)) {
      C* sums = product + i * columns_padded;
      for (int64_t e = 0, end = columns_padded; e < end; ++e) sums[e] *= shrink;
    }
    total[i] = total[i] * shrink + sum;
    top[i] = largest;
  }

  // product += weights * V.
  void add_values(int64_t key, int64_t keys) {
    const int64_t kv_head = task.head / call.shape.group;
    const T* v = row_of(call.v, call.v_stride, kv_head, key) + task.column;
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

  void write() {
    for (int64_t i = 0; i < task.rows; ++i) {
      T* to = call.out + task.batch * call.out_stride.batch + task.head * call.out_stride.head +
              (task.row + i) * call.out_stride.row + task.column;
      const C* from = product + i * columns_padded;
      // Every score was -inf: no weight was added up, not even a NaN.
      const bool hidden = top[i] == limits<C>::negative_infinity && total[i] == C(0);
      const bool spoiled = hidden || !(total[i] == total[i]);
      const bool empty = call.shape.T == 0 || (call.rules.empty_zero && hidden) || (call.rules.nan_zero && spoiled);
      const int64_t columns = task.columns;
      if (empty) {
        for (int64_t e = 0; e < columns; ++e) to[e] = store<T>(C(0));
      } else {
        const C inverse = C(1) / total[i];
        for (int64_t e = 0; e < columns; ++e) to[e] = store<T>(from[e] * inverse);
      }
    }
  }
};

}  // namespace detail

// Queries whose scores are all -inf get NaN, as plain softmax gives, unless the rules say otherwise; no keys at all give 0. A
// hidden key has the lowest finite score by default, as exporters write it: a query that sees no key gets the mean of the values.
// With a softcap c > 0 the score is c * tanh(scale * q . k / c) before the mask. scale, scores and softmax are in the compute
// type of T.
template <class T>
void attention(Context& c, const AttentionShape& shape, const T* q, const HeadStrides& q_stride, const T* k,
               const HeadStrides& k_stride, const T* v, const HeadStrides& v_stride, const AttentionMask& mask,
               compute_t<T> scale, compute_t<T> softcap, const AttentionRules<compute_t<T>>& rules, T* out,
               const HeadStrides& out_stride) {
  if (shape.B <= 0 || shape.H <= 0 || shape.S <= 0 || shape.Dv <= 0) return;
  const detail::AttentionCall<T> call = {shape, q,     q_stride, k,                 k_stride, v,         v_stride,
                                         mask,  scale, softcap,  rules, out,      out_stride};
  const int64_t blocks = ceil_quotient(shape.S, detail::query_block);
  const int64_t slices = ceil_quotient(shape.Dv, detail::head_slice);
  const int64_t tasks = shape.B * shape.H * blocks * slices;
  const int64_t work = shape.S / blocks * max_of(1, shape.T) * (shape.D + shape.Dv) / 16;
  parallel_ranges(c, tasks, work, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slice = t % slices;
      const int64_t block = t / slices % blocks;
      const int64_t head = t / slices / blocks;
      const int64_t column = slice * detail::head_slice;
      const detail::AttentionTask task = {head / shape.H,
                                          head % shape.H,
                                          block * (shape.S / blocks) + min_of(block, shape.S % blocks),
                                          shape.S / blocks + (block < shape.S % blocks ? 1 : 0),
                                          column,
                                          min_of(detail::head_slice, shape.Dv - column)};
      detail::AttentionBlock<T>(call, task).run();
    }
  });
}

}  // namespace ortisan
