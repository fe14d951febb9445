// Arithmetic on float16 and bfloat16, alone and in pairs: computed in float32 or double, and rounded once.
#include <cmath>

#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

struct Half {
  static float read(uint16_t x) { return from_half(x); }
  static uint16_t write(float x) { return to_half(x); }
};
struct Bfloat {
  static float read(uint16_t x) { return from_bfloat(x); }
  static uint16_t write(float x) { return to_bfloat(x); }
};

// Subnormal float16 numbers become 0 with .ftz.
float maybe_flush(float x, uint32_t flags) {
  return (flags & kFlush) != 0 && std::fabs(x) < 0x1p-14f ? std::copysign(0.0f, x) : x;
}

template <class H>
uint16_t finish(float x, uint32_t flags) {
  const float y = (flags & kSaturate) != 0 ? saturate(x) : (flags & kRelu) != 0 && x < 0 ? 0.0f : x;
  const uint16_t bits = H::write(y);
  return (flags & kFlush) != 0 && (bits & 0x7c00) == 0 ? bits & 0x8000 : bits;
}

struct Add {
  static float of(float a, float b, float) { return odd_float(double{a} + double{b}); }
};
struct Sub {
  static float of(float a, float b, float) { return odd_float(double{a} - double{b}); }
};
struct Mul {
  static float of(float a, float b, float) { return odd_float(double{a} * double{b}); }
};
struct Fma {
  static float of(float a, float b, float c) { return odd_float(add_to_odd(double{a} * double{b}, double{c})); }
};

template <class H, class F>
uint16_t apply(uint16_t a, uint16_t b, uint16_t c, uint32_t flags) {
  return finish<H>(
      F::of(maybe_flush(H::read(a), flags), maybe_flush(H::read(b), flags), maybe_flush(H::read(c), flags)), flags);
}

template <class H, class F>
void one(Warp& w, const Instr& i) {
  const uint32_t flags = i.flags;
  const uint32_t third = i.op[3] == kNone ? i.op[1] : i.op[3];
  const uint16_t* c = w.at<uint16_t>(third);
  Result<uint16_t> d(w, i.op[0]);
  const uint16_t *a = w.at<uint16_t>(i.op[1]), *b = w.at<uint16_t>(i.op[2]);
  for (int l = 0; l < kLanes; ++l) d.to[l] = apply<H, F>(a[l], b[l], c[l], flags);
  d.finish(w);
}

template <class H, class F>
void two(Warp& w, const Instr& i) {
  const uint32_t flags = i.flags;
  const uint32_t third = i.op[3] == kNone ? i.op[1] : i.op[3];
  const uint32_t* c = w.at<uint32_t>(third);
  Result<uint32_t> d(w, i.op[0]);
  const uint32_t *a = w.at<uint32_t>(i.op[1]), *b = w.at<uint32_t>(i.op[2]);
  for (int l = 0; l < kLanes; ++l) {
    const auto part = [&](int by) {
      const auto cut = [by](uint32_t x) { return static_cast<uint16_t>(x >> by); };
      return uint32_t{apply<H, F>(cut(a[l]), cut(b[l]), cut(c[l]), flags)} << by;
    };
    d.to[l] = part(0) | part(16);
  }
  d.finish(w);
}

// min and max. -0 is below 0; a NaN only where both are, or with .NaN where one is.
template <class H, bool kMax>
uint16_t extreme(uint16_t a, uint16_t b, uint32_t flags) {
  const float x = maybe_flush(H::read(a), flags), y = maybe_flush(H::read(b), flags);
  const bool keep = (flags & kNan) != 0;
  if (x != x) return H::write(keep ? x : y);
  if (y != y) return H::write(keep ? y : x);
  const bool first = x == y ? std::signbit(x) != kMax : (x < y) != kMax;
  return H::write(first ? x : y);
}
template <class H, bool kMax>
void one_extreme(Warp& w, const Instr& i) {
  const uint32_t flags = i.flags;
  map<uint16_t, uint16_t, uint16_t>(w, i, [=](uint16_t a, uint16_t b) { return extreme<H, kMax>(a, b, flags); });
}
template <class H, bool kMax>
void two_extremes(Warp& w, const Instr& i) {
  const uint32_t flags = i.flags;
  map<uint32_t, uint32_t, uint32_t>(w, i, [=](uint32_t a, uint32_t b) {
    const uint32_t low = extreme<H, kMax>(static_cast<uint16_t>(a), static_cast<uint16_t>(b), flags);
    return low | uint32_t{extreme<H, kMax>(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16), flags)}
                     << 16;
  });
}

void absolute(Warp& w, const Instr& i) {
  map<uint16_t, uint16_t>(w, i, [](uint16_t a) { return static_cast<uint16_t>(a & 0x7fff); });
}
void absolute2(Warp& w, const Instr& i) {
  map<uint32_t, uint32_t>(w, i, [](uint32_t a) { return a & 0x7fff7fff; });
}
void negate(Warp& w, const Instr& i) {
  map<uint16_t, uint16_t>(w, i, [](uint16_t a) { return static_cast<uint16_t>(a ^ 0x8000); });
}
void negate2(Warp& w, const Instr& i) {
  map<uint32_t, uint32_t>(w, i, [](uint32_t a) { return a ^ 0x80008000; });
}

#define FOUR(NAME, F)                                                                           \
  {NAME ".f16", one<Half, F>}, {NAME ".bf16", one<Bfloat, F>}, {NAME ".f16x2", two<Half, F>}, { \
    NAME ".bf16x2", two<Bfloat, F>                                                              \
  }
#define EXTREMES(NAME, MAX)                                                        \
  {NAME ".f16", one_extreme<Half, MAX>}, {NAME ".bf16", one_extreme<Bfloat, MAX>}, \
      {NAME ".f16x2", two_extremes<Half, MAX>}, {                                  \
    NAME ".bf16x2", two_extremes<Bfloat, MAX>                                      \
  }
#define SIGNS(NAME, F) {NAME ".f16", F}, {NAME ".bf16", F}, {NAME ".f16x2", F##2}, {NAME ".bf16x2", F##2}

}  // namespace

const Entry kHalf[] = {
    FOUR("add", Add),      FOUR("sub", Sub),       FOUR("mul", Mul),     FOUR("fma", Fma),   EXTREMES("min", false),
    EXTREMES("max", true), SIGNS("abs", absolute), SIGNS("neg", negate), {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#undef FOUR
#undef EXTREMES
#undef SIGNS
