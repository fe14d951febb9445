// What all ways of computing attention share: the call, which keys a query sees, and what a row of scores goes through.
#pragma once

#include <cstdint>

#include "fold.h"
#include "heads.h"
#include "loops.h"
#include "pieces.h"
#include "scalar.h"
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

// Added to the scores [B, H, S, T] (additive: elements of the tensors' type, wide: of the compute type), or chosen from them
// (boolean: false hides). Strides in elements, 0 to broadcast.
struct AttentionMask {
  enum Kind : uint8_t { none, additive, boolean, wide } kind = none;
  const void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
};

namespace detail {

constexpr int64_t key_block = 64;
static_assert(key_block % fold_lanes == 0);
constexpr int64_t head_slice = 256;

// One query of a call.
struct Query {
  int64_t batch, head, row;
};

// Queries of one batch: some rows of some heads.
struct QueryRange {
  int64_t batch, head, heads, row, rows;
};

// The tensors and constants of one call.
template <class T>
struct AttentionCall {
  using C = compute_t<T>;

  AttentionShape shape;
  const T* q;
  HeadStrides q_stride;
  const T* k;
  HeadStrides k_stride;
  const T* v;
  HeadStrides v_stride;
  AttentionMask mask;
  C scale, softcap;
  AttentionRules<C> rules;
  T* out;
  HeadStrides out_stride;
  PastRows<T> k_past, v_past;

  template <class E>
  static E* row_of(E* base, const HeadStrides& stride, int64_t batch, int64_t head, int64_t row) {
    return base + batch * stride.batch + head * stride.head + row * stride.row;
  }

  // How many keys the query may see, from the first on.
  int64_t visible_keys(int64_t row) const {
    return shape.causal ? max_of(0, min_of(shape.T, row + shape.past + 1)) : shape.T;
  }

  int64_t mask_offset(const Query& query, int64_t key) const {
    return query.batch * mask.batch + query.head * mask.head + query.row * mask.row + key * mask.column;
  }

  // Whether a boolean mask lets the query see a key in [begin, end).
  bool sees(const Query& query, int64_t begin, int64_t end) const {
    end = min_of(end, visible_keys(query.row));
    const uint8_t* data = static_cast<const uint8_t*>(mask.data) + mask_offset(query, 0);
    if (mask.column == 0) return begin < end && *data != 0;
    while (begin < end) {
      uint8_t any = 0;
      const int64_t stop = min_of(end, begin + key_block);
      if (mask.column == 1) {
        for (int64_t j = begin; j < stop; ++j) any |= data[j];
      } else {
        for (int64_t j = begin; j < stop; ++j) any |= data[j * mask.column];
      }
      if (any != 0) return true;
      begin = stop;
    }
    return false;
  }

  bool sees_any(const Query& query) const {
    // Most queries see the keys around their own position.
    const int64_t own = query.row + shape.T - shape.S;
    return sees(query, max_of(0, own - key_block / 2), own + key_block / 2) || sees(query, 0, shape.T);
  }

  // Whether blocks of keys that no query of the range sees may be left out. A hidden key has no weight when its score is -inf;
  // and when it is so low that any higher score leaves it none, as floats are spaced there, but the query must see a key:
  // else the hidden ones are all it has. `is_settled` says whether that went well.
  bool may_skip(const QueryRange& range) const {
    constexpr C low = std::is_same_v<C, double> ? C(-0x1p62) : C(-0x1p32);
    if (mask.kind != AttentionMask::boolean || !(rules.hidden <= low)) return false;
    if (rules.hidden == limits<C>::negative_infinity) return true;
    // Where all rows have the same mask, the first one sees the fewest keys, and below the last one the most.
    const int64_t heads = mask.head == 0 ? 1 : range.heads, rows = mask.row == 0 ? 1 : range.rows;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        if (!sees_any({range.batch, range.head + h, range.row + i})) return false;
      }
    }
    return true;
  }

  // Whether a query of the range sees a key in [begin, end).
  bool any_sees(const QueryRange& range, int64_t begin, int64_t end) const {
    const int64_t heads = mask.head == 0 ? 1 : range.heads, first = mask.row == 0 ? range.rows - 1 : 0;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = range.rows - 1; i >= first; --i) {
        if (sees({range.batch, range.head + h, range.row + i}, begin, end)) return true;
      }
    }
    return false;
  }

  // Whether blocks that were left out would have had no weight, given the largest score of the others.
  bool is_settled(C top) const { return rules.hidden == limits<C>::negative_infinity || top > rules.hidden; }

  // A row of scores is folded in whole lanes.
  static int64_t padded(int64_t keys) { return ceil_quotient(keys, fold_lanes) * fold_lanes; }

  // Scales, caps and masks the scores of a query with `keys` keys from `key` on. Keys that it may not see, and those that fill
  // the row up, get -inf.
  void finish_scores(const Query& query, int64_t key, int64_t keys, C* row) const {
    C factor = scale;
    if (softcap > C(0)) {
      const C cap = softcap, inverse = scale / cap;
      for (int64_t j = 0; j < keys; ++j) row[j] = cap * fn::tanh(row[j] * inverse);
      factor = C(1);
    }
    const int64_t step = mask.column;
    if (mask.kind == AttentionMask::additive) {
      add_mask(static_cast<const T*>(mask.data) + mask_offset(query, key), keys, factor, row);
    } else if (mask.kind == AttentionMask::wide) {
      add_mask(static_cast<const C*>(mask.data) + mask_offset(query, key), keys, factor, row);
    } else if (mask.kind == AttentionMask::boolean) {
      const bool* data = static_cast<const bool*>(mask.data) + mask_offset(query, key);
      const C hidden = rules.hidden;
      if (step == 1) {
        ORTISAN_INDEPENDENT
        for (int64_t j = 0; j < keys; ++j) row[j] = load(data[j]) ? row[j] * factor : hidden;
      } else {
        ORTISAN_INDEPENDENT
        for (int64_t j = 0; j < keys; ++j) row[j] = load(data[j * step]) ? row[j] * factor : hidden;
      }
    } else {
      for (int64_t j = 0; j < keys; ++j) row[j] *= factor;
    }
    const int64_t seen = min_of(keys, max_of(0, visible_keys(query.row) - key));
    for (int64_t j = seen; j < padded(keys); ++j) row[j] = limits<C>::negative_infinity;
  }

  template <class M>
  void add_mask(const M* data, int64_t keys, C factor, C* row) const {
    const int64_t step = mask.column;
    if (step == 1) {
      ORTISAN_INDEPENDENT
      for (int64_t j = 0; j < keys; ++j) row[j] = row[j] * factor + load(data[j]);
    } else {
      ORTISAN_INDEPENDENT
      for (int64_t j = 0; j < keys; ++j) row[j] = row[j] * factor + load(data[j * step]);
    }
  }

  // Writes `columns` columns, from `column` on, of what the query's weights and values add up to.
  void write(const Query& query, int64_t column, int64_t columns, C top, C total, const C* from) const {
    T* to = row_of(out, out_stride, query.batch, query.head, query.row) + column;
    // Every score was -inf: no weight was added up, not even a NaN.
    const bool hidden = top == limits<C>::negative_infinity && total == C(0);
    const bool spoiled = hidden || !(total == total);
    if (shape.T == 0 || (rules.empty_zero && hidden) || (rules.nan_zero && spoiled)) {
      for (int64_t e = 0; e < columns; ++e) to[e] = store<T>(C(0));
    } else {
      const C inverse = C(1) / total;
      for (int64_t e = 0; e < columns; ++e) to[e] = store<T>(from[e] * inverse);
    }
  }
};

// The larger one; a NaN is passed over, since it comes back in the sum of the weights.
struct Larger {
  template <class V>
  static V fold(V best, V candidate) {
    return candidate > best ? candidate : best;
  }
};

// What the differences to the maximum are taken to: while every score is -inf they would be NaN; the weights are 0 then.
template <class C>
inline C softmax_reference(C top) {
  return top == limits<C>::negative_infinity ? C(0) : top;
}

// Turns `width` scores into weights e^(score - m) and updates m, l and the product so far.
template <class C>
inline void weigh(C* row, int64_t width, C& top, C& total, C* product, int64_t columns) {
  const C largest = Larger::fold(top, fold_buffer<Larger>(row, width));
  const C reference = softmax_reference(largest);
  for (int64_t j = 0; j < width; ++j) row[j] = fn::exp_nonpositive(row[j] - reference);
  const C sum = fold_buffer<FoldSum>(row, width);
  const C shrink = fn::exp_nonpositive(top - reference);
  if (shrink != C(1)) {
    for (int64_t e = 0; e < columns; ++e) product[e] *= shrink;
  }
  total = total * shrink + sum;
  top = largest;
}

}  // namespace detail
}  // namespace ortisan
