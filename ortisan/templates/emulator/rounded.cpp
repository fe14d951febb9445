// float32 and float64 arithmetic with a rounding mode, .ftz or .sat. This source is compiled with -frounding-math.
#include <cfenv>
#include <cmath>

#include "lanes.h"
#include "rounding.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

float tidy_in(float x, uint32_t flags) { return (flags & kFlush) != 0 ? flush(x) : x; }
double tidy_in(double x, uint32_t) { return x; }
float tidy_out(float x, uint32_t flags) {
  x = (flags & kFlush) != 0 ? flush(x) : x;
  return (flags & kSaturate) != 0 ? saturate(x) : canonical(x);
}
double tidy_out(double x, uint32_t) { return x; }

enum class Op { kAdd, kSub, kMul, kDiv, kFma, kSqrt, kRcp };

template <class T, Op kOp>
void compute(Warp& w, const Instr& i) {
  const uint32_t flags = i.flags;
  const Rounding mode(flags);
  const T* a = w.at<T>(i.op[1]);
  const T* b = kOp == Op::kSqrt || kOp == Op::kRcp ? a : w.at<T>(i.op[2]);
  const T* c = kOp == Op::kFma ? w.at<T>(i.op[3]) : a;
  Result<T> d(w, i.op[0]);
  for (int l = 0; l < kLanes; ++l) {
    const T x = tidy_in(a[l], flags), y = tidy_in(b[l], flags), z = tidy_in(c[l], flags);
    T r;
    if constexpr (kOp == Op::kAdd) r = x + y;
    if constexpr (kOp == Op::kSub) r = x - y;
    if constexpr (kOp == Op::kMul) r = x * y;
    if constexpr (kOp == Op::kDiv) r = x / y;
    if constexpr (kOp == Op::kFma) r = std::fma(x, y, z);
    if constexpr (kOp == Op::kSqrt) r = std::sqrt(x);
    if constexpr (kOp == Op::kRcp) r = 1 / x;
    d.to[l] = tidy_out(r, flags);
  }
  d.finish(w);
}

#define BOTH(NAME, OP) \
  {NAME ".x.f32", compute<float, Op::OP>}, { NAME ".x.f64", compute<double, Op::OP> }

}  // namespace

const Entry kRounded[] = {
    BOTH("add", kAdd), BOTH("sub", kSub),   BOTH("mul", kMul), BOTH("div", kDiv),
    BOTH("fma", kFma), BOTH("sqrt", kSqrt), BOTH("rcp", kRcp), {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#undef BOTH
