// What PTX calls approximate: computed with errors far below those that the instruction set allows.
#include <cmath>

#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

template <class F>
void apply(Warp& w, const Instr& i, F f) {
  const bool flushed = (i.flags & kFlush) != 0;
  Result<float> d(w, i.op[0]);
  const float* a = w.at<float>(i.op[1]);
  for (int l = 0; l < kLanes; ++l) {
    const float y = canonical(f(flushed ? flush(a[l]) : a[l]));
    d.to[l] = flushed ? flush(y) : y;
  }
  d.finish(w);
}

void exp2(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return std::exp2(x); });
}
void log2(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return std::log2(x); });
}
void sine(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return std::sin(x); });
}
void cosine(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return std::cos(x); });
}
void tangent(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return std::tanh(x); });
}
void reciprocal(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return 1 / x; });
}
void root(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return std::sqrt(x); });
}
void inverse_root(Warp& w, const Instr& i) {
  apply(w, i, [](float x) { return static_cast<float>(1 / std::sqrt(double{x})); });
}
void inverse_root64(Warp& w, const Instr& i) {
  map<double, double>(w, i, [](double x) { return 1 / std::sqrt(x); });
}
void reciprocal64(Warp& w, const Instr& i) {
  map<double, double>(w, i, [](double x) { return 1 / x; });
}

// div.full, and div.approx: that gives 0 where the divisor is above 2^126, and a NaN when both are infinite.
void divide(Warp& w, const Instr& i) {
  const bool flushed = (i.flags & kFlush) != 0, limited = i.immediate != 0;
  map<float, float, float>(w, i, [=](float a, float b) {
    if (flushed) a = flush(a), b = flush(b);
    const float big = std::fabs(b);
    float y = canonical(a / b);
    if (limited && big > 0x1p126f && big <= 0x1.fffffep127f) y = std::isinf(a) ? as<float>(kNanBits) : 0.0f * y;
    return flushed ? flush(y) : y;
  });
}

template <float (*kFrom)(uint16_t), uint16_t (*kTo)(float), float (*kFunction)(float)>
void half(Warp& w, const Instr& i) {
  map<uint16_t, uint16_t>(w, i, [](uint16_t x) { return kTo(kFunction(kFrom(x))); });
}
template <float (*kFrom)(uint16_t), uint16_t (*kTo)(float), float (*kFunction)(float)>
void half2(Warp& w, const Instr& i) {
  map<uint32_t, uint32_t>(w, i, [](uint32_t x) {
    const uint32_t low = kTo(kFunction(kFrom(static_cast<uint16_t>(x))));
    return low | uint32_t{kTo(kFunction(kFrom(static_cast<uint16_t>(x >> 16))))} << 16;
  });
}

#define HALVES(NAME, F)                                                                      \
  {NAME ".f16", half<from_half, to_half, F>}, {NAME ".f16x2", half2<from_half, to_half, F>}, \
      {NAME ".bf16", half<from_bfloat, to_bfloat, F>}, {                                     \
    NAME ".bf16x2", half2<from_bfloat, to_bfloat, F>                                         \
  }

}  // namespace

const Entry kApproximate[] = {
    {"ex2.f32", exp2},
    {"lg2.f32", log2},
    {"sin.f32", sine},
    {"cos.f32", cosine},
    {"tanh.f32", tangent},
    {"rcp.approx.f32", reciprocal},
    {"sqrt.approx.f32", root},
    {"rsqrt.f32", inverse_root},
    {"rsqrt.f64", inverse_root64},
    {"rcp.approx.f64", reciprocal64},
    {"div.approx.f32", divide},
    HALVES("ex2", std::exp2),
    HALVES("tanh", std::tanh),
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#undef HALVES
