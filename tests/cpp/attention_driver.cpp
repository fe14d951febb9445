// The kernels of attention.h as C functions.
#include "attention.h"
#include "driver.h"

using namespace ortisan;
using driver::same;
using driver::TestContext;

template <class F>
int with_float(const char* type, F f) {
  if (same(type, "float32")) return f(float{}), 1;
  if (same(type, "float64")) return f(double{}), 1;
  if (same(type, "float16")) return f(half{}), 1;
  if (same(type, "bfloat16")) return f(bfloat16{}), 1;
  return 0;
}

struct AttentionArguments {
  int64_t shape[7];  // B H S T D Dv group
  int64_t q[3], k[3], v[3], out[3], mask[4];
  int32_t mask_kind, empty_zero, nan_zero;
  double scale, softcap, hidden;
  int64_t causal, past;
  int64_t first, k_first[3], v_first[3];  // rows of k and v that are read elsewhere
};

EXPORT int attention_array(const char* type, const AttentionArguments* x, const void* q, const void* k, const void* v,
                           const void* mask_data, const void* k_first, const void* v_first, void* out) {
  TestContext c;
  const int64_t* s = x->shape;
  const AttentionShape shape = {s[0], s[1], s[2], s[3], s[4], s[5], s[6], x->causal != 0, x->past};
  AttentionMask mask;
  mask.kind = static_cast<AttentionMask::Kind>(x->mask_kind);
  mask.data = mask_data;
  mask.batch = x->mask[0], mask.head = x->mask[1], mask.row = x->mask[2], mask.column = x->mask[3];
  const auto strides = [](const int64_t* p) { return HeadStrides{p[0], p[1], p[2]}; };
  return with_float(type, [&](auto t) {
    using T = decltype(t);
    using C = compute_t<T>;
    const AttentionRules<C> rules = {static_cast<C>(x->hidden), x->empty_zero != 0, x->nan_zero != 0};
    attention(c, shape, static_cast<const T*>(q), strides(x->q), static_cast<const T*>(k), strides(x->k),
              static_cast<const T*>(v), strides(x->v), mask, static_cast<C>(x->scale), static_cast<C>(x->softcap),
              rules, static_cast<T*>(out), strides(x->out),
              {static_cast<const T*>(k_first), strides(x->k_first), x->first},
              {static_cast<const T*>(v_first), strides(x->v_first), x->first});
  });
}

// A vector of the type, converted to float as load_lanes does. Returns how many values it has.
EXPORT int64_t load_one_vector(const char* type, const void* x, float* out) {
  const auto copy = [=](const auto* from) {
    const auto lanes = detail::load_lanes(from);
    __builtin_memcpy(out, &lanes, sizeof(lanes));
  };
  if (same(type, "float16")) copy(static_cast<const half*>(x));
  if (same(type, "bfloat16")) copy(static_cast<const bfloat16*>(x));
  return detail::lane_count<float>;
}
