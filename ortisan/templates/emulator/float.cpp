// float32 and float64 arithmetic, rounded to nearest, without .ftz and .sat: what most instructions are.
#include <cmath>

#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

template <class T>
T clean(T x) {
  return x;
}
template <>
float clean(float x) {
  return canonical(x);
}

template <class T>
void add(Warp& w, const Instr& i) {
  map<T, T, T>(w, i, [](T a, T b) { return clean<T>(a + b); });
}
template <class T>
void sub(Warp& w, const Instr& i) {
  map<T, T, T>(w, i, [](T a, T b) { return clean<T>(a - b); });
}
template <class T>
void mul(Warp& w, const Instr& i) {
  map<T, T, T>(w, i, [](T a, T b) { return clean<T>(a * b); });
}
template <class T>
void divide(Warp& w, const Instr& i) {
  map<T, T, T>(w, i, [](T a, T b) { return clean<T>(a / b); });
}
template <class T>
void fma(Warp& w, const Instr& i) {
  map<T, T, T, T>(w, i, [](T a, T b, T c) { return clean<T>(std::fma(a, b, c)); });
}
template <class T>
void square_root(Warp& w, const Instr& i) {
  map<T, T>(w, i, [](T a) { return clean<T>(std::sqrt(a)); });
}
template <class T>
void reciprocal(Warp& w, const Instr& i) {
  map<T, T>(w, i, [](T a) { return clean<T>(1 / a); });
}

float maybe_flush(float x, bool on) { return on ? flush(x) : x; }
double maybe_flush(double x, bool) { return x; }

// A NaN only where both are NaN, or with .NaN where one is; -0 is below 0.
template <class T, class U, U kSign>
void minimum(Warp& w, const Instr& i) {
  const bool flushed = (i.flags & kFlush) != 0, keep = (i.flags & kNan) != 0;
  map<T, T, T>(w, i, [=](T a, T b) {
    a = maybe_flush(a, flushed), b = maybe_flush(b, flushed);
    const T equal = as<T>(static_cast<U>(as<U>(a) | as<U>(b)));
    const T less = a < b ? a : a == b ? equal : b;
    const T some = a != a ? (keep ? a : b) : b != b ? (keep ? b : a) : less;
    return clean<T>(some);
  });
}
template <class T, class U, U kSign>
void maximum(Warp& w, const Instr& i) {
  const bool flushed = (i.flags & kFlush) != 0, keep = (i.flags & kNan) != 0;
  map<T, T, T>(w, i, [=](T a, T b) {
    a = maybe_flush(a, flushed), b = maybe_flush(b, flushed);
    const T equal = as<T>(static_cast<U>(as<U>(a) & as<U>(b)));
    const T more = a > b ? a : a == b ? equal : b;
    const T some = a != a ? (keep ? a : b) : b != b ? (keep ? b : a) : more;
    return clean<T>(some);
  });
}

template <class T, class U, U kSign>
void absolute(Warp& w, const Instr& i) {
  const bool flushed = (i.flags & kFlush) != 0;
  map<T, T>(w, i, [=](T a) { return as<T>(static_cast<U>(as<U>(maybe_flush(a, flushed)) & ~kSign)); });
}
template <class T, class U, U kSign>
void negate(Warp& w, const Instr& i) {
  const bool flushed = (i.flags & kFlush) != 0;
  map<T, T>(w, i, [=](T a) { return as<T>(static_cast<U>(as<U>(maybe_flush(a, flushed)) ^ kSign)); });
}
// The magnitude of the second operand with the sign of the first.
template <class T, class U, U kSign>
void copy_sign(Warp& w, const Instr& i) {
  map<U, U, U>(w, i, [](U a, U b) { return static_cast<U>((a & kSign) | (b & ~kSign)); });
}

// testp: 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal.
template <class T>
void test(Warp& w, const Instr& i) {
  const T* a = w.at<T>(i.op[1]);
  uint32_t bits = 0;
  for (int l = 0; l < kLanes; ++l) {
    const int kind = std::fpclassify(a[l]);
    const bool is[] = {kind != FP_NAN && kind != FP_INFINITE,
                       kind == FP_INFINITE,
                       kind != FP_NAN,
                       kind == FP_NAN,
                       kind == FP_NORMAL,
                       kind == FP_SUBNORMAL};
    bits |= uint32_t{is[i.immediate]} << l;
  }
  set_bits(w, i.op[0], bits);
}

#define BOTH(NAME, F) \
  {NAME ".f32", F<float>}, { NAME ".f64", F<double> }
#define SIGNS(NAME, F) \
  {NAME ".f32", F<float, uint32_t, 0x80000000u>}, { NAME ".f64", F<double, uint64_t, 0x8000000000000000u> }

}  // namespace

const Entry kFloat[] = {
    BOTH("add", add),      BOTH("sub", sub),          BOTH("mul", mul),        BOTH("div", divide),
    BOTH("fma", fma),      BOTH("sqrt", square_root), BOTH("rcp", reciprocal), SIGNS("min", minimum),
    SIGNS("max", maximum), SIGNS("abs", absolute),    SIGNS("neg", negate),    SIGNS("copysign", copy_sign),
    BOTH("testp", test),   {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#undef BOTH
#undef SIGNS
