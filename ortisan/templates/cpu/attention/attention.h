// Scaled dot-product attention:  out = softmax(cap(scale * Q K^T) + mask) V  per batch and head, without a score matrix in
// memory.
//
// Keys are walked over in blocks, keeping per query the running maximum m, the running sum l of e^(score - m), and the running
// product with V; when m grows, l and the product shrink by e^(m_old - m). All buffers are on the stack. Head sizes above the
// buffers are walked in slices: scores are added up over slices of D, and each slice of Dv is a task of its own.
//
// Blocks of keys that a boolean mask hides from every query of a task are not read. That changes no result, but that NaN and
// infinity in them stay out of it.
#pragma once

#include <cstdint>

#include "attention_blocks.h"
#include "attention_rows.h"
#include "attention_thin.h"

namespace ortisan {

// Queries whose scores are all -inf get NaN, as plain softmax gives, unless the rules say otherwise; no keys at all give 0. A
// hidden key has the lowest finite score by default, as exporters write it: a query that sees no key gets the mean of the values.
// With a softcap c > 0 the score is c * tanh(scale * q . k / c) before the mask. scale, scores and softmax are in the compute
// type of T. Few queries read the first keys and values from their past, where that is given: whoever joined it to the others has
// just read it, and may have written the result around the caches.
template <class T>
void attention(Context& c, const AttentionShape& shape, const T* q, const HeadStrides& q_stride, const T* k,
               const HeadStrides& k_stride, const T* v, const HeadStrides& v_stride, const AttentionMask& mask,
               compute_t<T> scale, compute_t<T> softcap, const AttentionRules<compute_t<T>>& rules, T* out,
               const HeadStrides& out_stride, const PastRows<T>& k_past = {}, const PastRows<T>& v_past = {}) {
  if (shape.B <= 0 || shape.H <= 0 || shape.S <= 0 || shape.Dv <= 0) return;
  const detail::AttentionCall<T> call = {shape, q,       q_stride, k,   k_stride,   v,      v_stride, mask,
                                         scale, softcap, rules,    out, out_stride, k_past, v_past};
  if (is_thin(shape.S, shape.group)) {
    detail::attention_thin(c, call);
  } else {
    detail::attention_blocks(c, call);
  }
}

}  // namespace ortisan
