// The kernels of generate.h, move.h, trilu.h, pad.h, reduce.h, scan.h, rows.h and gather.h as C functions. Types and ops are chosen by name.
#include "driver.h"
#include "gather.h"
#include "generate.h"
#include "move.h"
#include "pad.h"
#include "reduce.h"
#include "rows.h"
#include "scan.h"
#include "trilu.h"

using namespace ortisan;
using driver::same;
using driver::TestContext;

EXPORT void copy(int size, int64_t rank, const int64_t* extent, const void* src, const int64_t* src_stride, void* dst,
                 const int64_t* dst_stride, int streamed) {
  TestContext c;
  const auto run = [&](auto e) {
    using E = decltype(e);
    copy_nd<E>(c, rank, extent, static_cast<const E*>(src), src_stride, static_cast<E*>(dst), dst_stride,
               streamed != 0);
  };
  if (size == 1) run(uint8_t{});
  if (size == 2) run(uint16_t{});
  if (size == 4) run(uint32_t{});
  if (size == 8) run(uint64_t{});
}

EXPORT void pad(int64_t rank, const int64_t* src_extent, const int64_t* before, const int64_t* dst_extent, int mode,
                const uint32_t* src, uint32_t* dst) {
  TestContext c;
  pad_nd(c, rank, src_extent, before, dst_extent, static_cast<PadMode>(mode), src, dst);
}

EXPORT void fill_bytes(int64_t count, uint8_t value, uint8_t* dst) {
  TestContext c;
  fill(c, count, value, dst);
}
EXPORT void arange_float(int64_t count, float start, float step, float* dst) {
  TestContext c;
  arange(c, count, start, step, dst);
}
EXPORT void arange_int16(int64_t count, int16_t start, int16_t step, int16_t* dst) {
  TestContext c;
  arange(c, count, start, step, dst);
}

// One (op, type) pair per line: each is a second of compilation, so only the pairs that differ in code are here.
EXPORT int reduce_array(const char* op, const char* type, int64_t outer, int64_t n, int64_t inner, const void* in,
                        void* out) {
  TestContext c;
#define REDUCE(name, type_name, T)                                                                   \
  if (same(op, #name) && same(type, type_name)) {                                                    \
    reduce<reduction::name, T>(c, outer, n, inner, static_cast<const T*>(in), static_cast<T*>(out)); \
    return 1;                                                                                        \
  }
  REDUCE(sum, "float32", float)
  REDUCE(mean, "float32", float)
  REDUCE(prod, "float32", float)
  REDUCE(max, "float32", float)
  REDUCE(min, "float32", float)
  REDUCE(l1, "float32", float)
  REDUCE(l2, "float32", float)
  REDUCE(sum_square, "float32", float)
  REDUCE(log_sum, "float32", float)
  REDUCE(log_sum_exp, "float32", float)
  REDUCE(mean, "float64", double)
  REDUCE(sum, "float16", half)
  REDUCE(max, "float16", half)
  REDUCE(sum, "int32", int32_t)
  REDUCE(mean, "int32", int32_t)
  REDUCE(l2, "int32", int32_t)
  REDUCE(max, "int32", int32_t)
  REDUCE(prod, "uint8", uint8_t)
  REDUCE(min, "uint8", uint8_t)
  REDUCE(any, "bool", bool)
  REDUCE(all, "bool", bool)
  return 0;
}

EXPORT void arg_float(int largest, int64_t outer, int64_t n, int64_t inner, int last, const float* in, int64_t* out) {
  TestContext c;
  if (largest != 0) {
    argmax(c, outer, n, inner, last != 0, in, out);
  } else {
    argmin(c, outer, n, inner, last != 0, in, out);
  }
}

EXPORT void cumsum_float(int64_t outer, int64_t n, int64_t inner, int exclusive, int reverse, const float* in,
                         float* out) {
  TestContext c;
  cumsum(c, outer, n, inner, exclusive != 0, reverse != 0, in, out);
}
EXPORT void cumsum_int32(int64_t outer, int64_t n, int64_t inner, int exclusive, int reverse, const int32_t* in,
                         int32_t* out) {
  TestContext c;
  cumsum(c, outer, n, inner, exclusive != 0, reverse != 0, in, out);
}

template <class F>
void with_float(const char* type, F f) {
  if (same(type, "float32")) f(float{});
  if (same(type, "float64")) f(double{});
  if (same(type, "float16")) f(half{});
  if (same(type, "bfloat16")) f(bfloat16{});
}

EXPORT void softmax_array(const char* type, int logarithm, int64_t outer, int64_t n, int64_t inner, const void* x,
                          void* y) {
  TestContext c;
  with_float(type, [&](auto t) {
    using T = decltype(t);
    if (logarithm != 0) {
      log_softmax(c, outer, n, inner, static_cast<const T*>(x), static_cast<T*>(y));
    } else {
      softmax(c, outer, n, inner, static_cast<const T*>(x), static_cast<T*>(y));
    }
  });
}

EXPORT void layernorm_array(const char* type, int64_t outer, int64_t n, const void* x, const void* gamma,
                            const void* beta, double epsilon, void* y, void* mean, void* inv_std) {
  TestContext c;
  with_float(type, [&](auto t) {
    using T = decltype(t);
    using A = compute_t<T>;
    layernorm(c, outer, n, static_cast<const T*>(x), static_cast<const T*>(gamma), static_cast<const T*>(beta),
              static_cast<A>(epsilon), static_cast<T*>(y), static_cast<A*>(mean), static_cast<A*>(inv_std));
  });
}

EXPORT void rms_norm_float(int64_t outer, int64_t n, const float* x, const float* gamma, float epsilon, float* y,
                           float* inv_rms) {
  TestContext c;
  rms_norm(c, outer, n, x, gamma, epsilon, y, inv_rms);
}

// Each gather returns the failure message or null.
EXPORT const char* gather_int64(int64_t outer, int64_t extent, int64_t inner, int64_t count, const uint32_t* data,
                                const int64_t* indices, uint32_t* out) {
  TestContext c;
  gather(c, outer, extent, inner, count, data, indices, out, "index out of range");
  return c.failure;
}
EXPORT const char* gather_int32(int64_t outer, int64_t extent, int64_t inner, int64_t count, const uint16_t* data,
                                const int32_t* indices, uint16_t* out) {
  TestContext c;
  gather(c, outer, extent, inner, count, data, indices, out, "index out of range");
  return c.failure;
}
EXPORT const char* gather_elements_int64(int64_t rank, int64_t axis, const int64_t* data_extent,
                                         const int64_t* index_extent, const uint32_t* data, const int64_t* indices,
                                         uint32_t* out) {
  TestContext c;
  gather_elements(c, rank, axis, data_extent, index_extent, data, indices, out, "index out of range");
  return c.failure;
}
EXPORT const char* gather_nd_int64(int64_t batch, int64_t count, int64_t depth, const int64_t* extent, int64_t inner,
                                   const uint32_t* data, const int64_t* indices, uint32_t* out) {
  TestContext c;
  gather_nd(c, batch, count, depth, extent, inner, data, indices, out, "index out of range");
  return c.failure;
}
EXPORT void trilu_32(int64_t batch, int64_t rows, int64_t columns, int64_t k, int upper, const uint32_t* in,
                     uint32_t* out) {
  TestContext c;
  trilu(c, batch, rows, columns, k, upper != 0, in, out);
}
