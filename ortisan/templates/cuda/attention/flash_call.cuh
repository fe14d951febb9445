// What attention reads and writes: y = softmax(scale q k^T + mask) v, row by row where the tensors are.
//
// q[B,H,S,D], k[B,K,T,D], v[B,K,T,E], mask[B,H,S,T] -> y[B,H,S,E]. Elements of a row of q, k, v and y are adjacent; all
// else is found by strides, which are counted in elements. Keys and values are two parts: `past` rows, then the others.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ortisan {

enum class Mask { none, additive, boolean };
enum class Causal { none, upper_left, lower_right };

template <class T>
struct Rows {
  T* data;
  int64_t batch, head, row;  // strides

  __host__ __device__ T* at(int64_t b, int64_t h, int64_t r) const { return data + b * batch + h * head + r * row; }
};

// Rows of keys or values; the past ones may be elsewhere.
template <class T>
struct KeyRows {
  Rows<const T> past, fresh;

  __device__ const T* at(int64_t b, int64_t h, int64_t r, int64_t past_rows) const {
    return r < past_rows ? past.at(b, h, r) : fresh.at(b, h, r - past_rows);
  }
};

struct MaskRows {
  const void* data;
  int64_t batch, head, row, key;  // strides; 0 where one element is for all
};

template <class T>
struct FlashCall {
  Rows<const T> q;
  KeyRows<T> k, v;
  MaskRows mask;
  Rows<T> y;
  int32_t batch, heads, group;  // group: query heads per head of keys
  int32_t queries, past, keys;  // keys: all of them, `past` included
  float scale, softcap, hidden;  // softcap: 0 for none; hidden: the logit where a boolean mask is false
};

// An attention's fixed part: its element type, sizes of heads, and rules.
template <class Element, int head, int value, Mask mask_kind, Causal causality, bool empty_rows_zero,
          bool nan_rows_zero>
struct FlashKind {
  using T = Element;
  static constexpr int D = head, E = value;
  static constexpr Mask mask = mask_kind;
  static constexpr Causal causal = causality;
  static constexpr bool zero_empty = empty_rows_zero || nan_rows_zero, zero_nan = nan_rows_zero;
};

}  // namespace ortisan
