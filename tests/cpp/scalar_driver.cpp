// The scalar functions and casts as loops over arrays, found by name. Each returns 0 when there is no such function.
#include "driver.h"
#include "loops.h"
#include "scalar.h"

namespace fn = ortisan::fn;
using namespace ortisan;

#define UNARY(name) \
  if (driver::same(function, #name)) return map(count, x, y, [](T a) { return fn::name(a); })
#define BINARY(name) \
  if (driver::same(function, #name)) return map2(count, x, y, z, [](T a, T b) { return fn::name(a, b); })

template <class T, class R, class F>
int map(int64_t count, const T* x, R* y, F f) {
  for (int64_t i = 0; i < count; ++i) y[i] = f(load(x[i]));
  return 1;
}

template <class T, class R, class F>
int map2(int64_t count, const T* x, const T* y, R* z, F f) {
  for (int64_t i = 0; i < count; ++i) z[i] = f(load(x[i]), load(y[i]));
  return 1;
}

template <class T>
int float_unary(const char* function, int64_t count, const T* x, T* y, T p, T q) {
  UNARY(exp);
  UNARY(log);
  UNARY(log1p);
  UNARY(sqrt);
  UNARY(rsqrt);
  UNARY(reciprocal);
  UNARY(sin);
  UNARY(cos);
  UNARY(tan);
  UNARY(asin);
  UNARY(acos);
  UNARY(atan);
  UNARY(sinh);
  UNARY(cosh);
  UNARY(tanh);
  UNARY(asinh);
  UNARY(acosh);
  UNARY(atanh);
  UNARY(erf);
  UNARY(sigmoid);
  UNARY(relu);
  UNARY(abs);
  UNARY(neg);
  UNARY(sign);
  UNARY(floor);
  UNARY(ceil);
  UNARY(round);
  UNARY(softplus);
  UNARY(softsign);
  UNARY(gelu);
  UNARY(fastgelu);
  UNARY(silu);
  UNARY(mish);
  UNARY(hardswish);
  UNARY(isnan);
  UNARY(isinf);
#define WITH(name, ...) \
  if (driver::same(function, #name)) return map(count, x, y, [=](T a) { return fn::name(a, __VA_ARGS__); })
  WITH(hardsigmoid, p, q);
  WITH(elu, p);
  WITH(selu, p, q);
  WITH(celu, p);
  WITH(lrelu, p);
  WITH(leaky_relu, p);
  WITH(thresholded_relu, p);
  WITH(shrink, p, q);
  WITH(clamp, p, q);
  return 0;
}

// As generated loops call a function that has a version for common arguments.
template <class Common, class Leaves, class Whole>
int map_common(int64_t count, const float* x, float* y, Common common, Leaves leaves, Whole whole) {
  for (int64_t begin = 0; begin < count; begin += strip_length) {
    const int64_t n = count - begin < strip_length ? count - begin : strip_length;
    const float* from = x + begin;
    float* to = y + begin;
    uint32_t rare = 0;
    for_strip(n, [&](int64_t i) ORTISAN_INLINE {
      rare |= leaves(from[i]);
      to[i] = common(from[i]);
    });
    if (rare != 0) {
      ORTISAN_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = whole(from[i]);
    }
  }
  return 1;
}

EXPORT int common_float(const char* function, int64_t count, const float* x, float* y) {
#define COMMON(name)                                                                                                  \
  if (driver::same(function, #name))                                                                                  \
  return map_common(                                                                                                  \
      count, x, y, [](float a) { return fn::common::name(a); }, [](float a) { return fn::common::leaves_##name(a); }, \
      [](float a) { return fn::name(a); })
  COMMON(log);
  COMMON(sin);
  COMMON(cos);
  COMMON(tan);
  return 0;
}

template <class T>
int arithmetic(const char* function, int64_t count, const T* x, const T* y, T* z) {
  BINARY(add);
  BINARY(sub);
  BINARY(mul);
  BINARY(div);
  BINARY(mod);
  BINARY(fmod);
  BINARY(pow);
  BINARY(max);
  BINARY(min);
  if (driver::same(function, "prelu")) return map2(count, x, y, z, [](T a, T b) { return fn::prelu(a, b); });
  return 0;
}

template <class T>
int compare(const char* function, int64_t count, const T* x, const T* y, bool* z) {
  BINARY(eq);
  BINARY(ne);
  BINARY(gt);
  BINARY(ge);
  BINARY(lt);
  BINARY(le);
  return 0;
}

template <class T>
int integer(const char* function, int64_t count, const T* x, const T* y, T* z) {
  BINARY(bitwise_and);
  BINARY(bitwise_or);
  BINARY(bitwise_xor);
  BINARY(shift_left);
  BINARY(shift_right);
  if (driver::same(function, "bitwise_not")) return map(count, x, z, [](T a) { return fn::bitwise_not(a); });
  if (driver::same(function, "abs")) return map(count, x, z, [](T a) { return fn::abs(a); });
  if (driver::same(function, "neg")) return map(count, x, z, [](T a) { return fn::neg(a); });
  if (driver::same(function, "sign")) return map(count, x, z, [](T a) { return fn::sign(a); });
  if (driver::same(function, "relu")) return map(count, x, z, [](T a) { return fn::relu(a); });
  return arithmetic(function, count, x, y, z);
}

EXPORT int unary_float(const char* f, int64_t n, const float* x, float* y, double p, double q) {
  return float_unary<float>(f, n, x, y, static_cast<float>(p), static_cast<float>(q));
}
EXPORT int unary_double(const char* f, int64_t n, const double* x, double* y, double p, double q) {
  return float_unary<double>(f, n, x, y, p, q);
}

#define BINARY_OF(kind, suffix, type, result)                                                     \
  EXPORT int kind##_##suffix(const char* f, int64_t n, const type* x, const type* y, result* z) { \
    return kind(f, n, x, y, z);                                                                   \
  }
BINARY_OF(arithmetic, float32, float, float)
BINARY_OF(arithmetic, float64, double, double)
BINARY_OF(compare, float32, float, bool)
BINARY_OF(compare, int64, int64_t, bool)
BINARY_OF(integer, int8, int8_t, int8_t)
BINARY_OF(integer, uint8, uint8_t, uint8_t)
BINARY_OF(integer, int16, int16_t, int16_t)
BINARY_OF(integer, uint16, uint16_t, uint16_t)
BINARY_OF(integer, int32, int32_t, int32_t)
BINARY_OF(integer, uint32, uint32_t, uint32_t)
BINARY_OF(integer, int64, int64_t, int64_t)
BINARY_OF(integer, uint64, uint64_t, uint64_t)

EXPORT void pow_float_int64(int64_t n, const float* x, const int64_t* y, float* z) {
  for (int64_t i = 0; i < n; ++i) z[i] = fn::pow(x[i], y[i]);
}
EXPORT void pow_int32_float(int64_t n, const int32_t* x, const float* y, int32_t* z) {
  for (int64_t i = 0; i < n; ++i) z[i] = fn::pow(x[i], y[i]);
}

EXPORT int logical(const char* function, int64_t count, const bool* x, const bool* y, bool* z) {
  using T = bool;
  BINARY(logical_and);
  BINARY(logical_or);
  BINARY(logical_xor);
  BINARY(max);
  BINARY(min);
  BINARY(eq);
  if (driver::same(function, "logical_not")) return map(count, x, z, [](T a) { return fn::logical_not(a); });
  return 0;
}

EXPORT void where_float(int64_t n, const bool* condition, const float* x, const float* y, float* z) {
  for (int64_t i = 0; i < n; ++i) z[i] = fn::where(load(condition[i]), x[i], y[i]);
}

template <class To, class From>
int cast_all(int64_t count, const void* x, void* y) {
  const From* from = static_cast<const From*>(x);
  To* to = static_cast<To*>(y);
  for (int64_t i = 0; i < count; ++i) to[i] = cast<To>(from[i]);
  return 1;
}

template <class F>
int with_type(const char* name, F f) {
  if (driver::same(name, "float32")) return f(float{});
  if (driver::same(name, "float64")) return f(double{});
  if (driver::same(name, "float16")) return f(half{});
  if (driver::same(name, "bfloat16")) return f(bfloat16{});
  if (driver::same(name, "int8")) return f(int8_t{});
  if (driver::same(name, "int16")) return f(int16_t{});
  if (driver::same(name, "int32")) return f(int32_t{});
  if (driver::same(name, "int64")) return f(int64_t{});
  if (driver::same(name, "uint8")) return f(uint8_t{});
  if (driver::same(name, "uint16")) return f(uint16_t{});
  if (driver::same(name, "uint32")) return f(uint32_t{});
  if (driver::same(name, "uint64")) return f(uint64_t{});
  if (driver::same(name, "bool")) return f(bool{});
  return 0;
}

EXPORT int cast_array(const char* from, const char* to, int64_t count, const void* x, void* y) {
  return with_type(from, [&](auto a) {
    return with_type(to, [&](auto b) { return cast_all<decltype(b), decltype(a)>(count, x, y); });
  });
}
