// The kernels' float functions as loops over arrays in the nearest cache, the way generated kernels call them.
// Built as a shared library; benchmarks/functions.py calls seconds_of.
#include <chrono>
#include <cstring>

#include "loops.h"
#include "scalar.h"

using namespace ortisan;

namespace {

struct Arrays {
  int64_t n;
  const float* __restrict x;
  const float* __restrict z;
  float* __restrict y;
};

// A function of dozens of instructions.
template <class F>
ORTISAN_INLINE inline void strips(const Arrays& a, const F& f) {
  for (int64_t begin = 0; begin < a.n; begin += strip_length) {
    const float *x = a.x + begin, *z = a.z + begin;
    float* y = a.y + begin;
    for_strip(min_of(strip_length, a.n - begin), [=](int64_t i) ORTISAN_INLINE { y[i] = f(x[i], z[i]); });
  }
}

// One that has a version for common arguments.
template <class F, class Leaves, class Whole>
ORTISAN_INLINE inline void common_strips(const Arrays& a, const F& f, const Leaves& leaves, const Whole& whole) {
  for (int64_t begin = 0; begin < a.n; begin += strip_length) {
    const float* x = a.x + begin;
    float* y = a.y + begin;
    const int64_t n = min_of(strip_length, a.n - begin);
    uint32_t rare = 0;
    for_strip(n, [&](int64_t i) ORTISAN_INLINE {
      rare |= leaves(x[i]);
      y[i] = f(x[i]);
    });
    if (rare != 0) {
      for (int64_t i = 0; i < n; ++i) y[i] = whole(x[i]);
    }
  }
}

// One of a few instructions.
template <class F>
ORTISAN_INLINE inline void line(const Arrays& a, const F& f) {
  const float *x = a.x, *z = a.z;
  float* y = a.y;
  const int64_t n = a.n;
  ORTISAN_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i], z[i]);
}

struct Row {
  const char* name;
  void (*run)(const Arrays&);
};

#define UNARY(f) {#f, [](const Arrays& a) { strips(a, [](float x, float) ORTISAN_INLINE { return fn::f(x); }); }}
#define COMMON(f)                                                          \
  {#f, [](const Arrays& a) {                                               \
     common_strips(                                                        \
         a, [](float x) ORTISAN_INLINE { return fn::common::f(x); },       \
         [](float x) ORTISAN_INLINE { return fn::common::leaves_##f(x); }, \
         [](float x) ORTISAN_INLINE { return fn::f(x); });                 \
   }}
#define CHEAP(f) {#f, [](const Arrays& a) { line(a, [](float x, float) ORTISAN_INLINE { return fn::f(x); }); }}
#define BINARY(f) {#f, [](const Arrays& a) { line(a, [](float x, float z) ORTISAN_INLINE { return fn::f(x, z); }); }}

constexpr Row rows[] = {
    BINARY(add), BINARY(div),     CHEAP(sqrt),  UNARY(exp),   UNARY(expm1),    COMMON(log),    UNARY(log1p),
    COMMON(sin), COMMON(cos),     COMMON(tan),  UNARY(asin),  UNARY(acos),     UNARY(atan),    UNARY(sinh),
    UNARY(cosh), UNARY(tanh),     UNARY(asinh), UNARY(acosh), UNARY(atanh),    UNARY(sigmoid), UNARY(erf),
    UNARY(gelu), UNARY(fastgelu), UNARY(silu),  UNARY(mish),  UNARY(softplus), BINARY(pow),
};

}  // namespace

// Seconds that `repeats` runs of a function over n elements take; negative when there is no such function.
extern "C" __attribute__((visibility("default"))) double seconds_of(const char* name, int64_t n, const float* x,
                                                                    const float* z, float* y, int64_t repeats) {
  for (const Row& row : rows) {
    if (std::strcmp(row.name, name) != 0) continue;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeats; ++i) {
      row.run({n, x, z, y});
      asm volatile("" : : "r"(y) : "memory");
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return -1.0;
}
