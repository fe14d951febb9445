// exp, log and the functions built from them, without branches, so that loops calling them vectorise.
//
// Floats: range reduction and near-minimax polynomials on the reduced interval, in float arithmetic. Doubles: the C library.
// NaN, infinities, signed zeros and subnormals come out as in the C library.
#pragma once

#include "arithmetic.h"
#include "macros.h"
#include "types.h"

namespace ortisan::fn {

namespace detail {

constexpr float log2_e = 1.44269504f;
constexpr float ln2_high = 0x1.63p-1f;  // few bits, so that its product with an exponent is exact
constexpr float ln2_low = -2.12194440e-4f;
constexpr float round_shift = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits of the sum
constexpr int32_t round_shift_bits = 0x4b400000;

// a b + c, with one rounding where the CPU has an instruction for it: of two products that are added the compiler may fuse either,
// in one loop this, in another that.
ORTISAN_BOTH inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDA_ARCH__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

ORTISAN_BOTH inline float select(bool condition, float a, float b) { return condition ? a : b; }

ORTISAN_BOTH inline float power_of_two(int32_t exponent) {
  return bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// x 2^n for a normal x and the n in the low 9 bits of `bits`, when the result is normal too.
ORTISAN_BOTH inline float add_exponent(float x, uint32_t bits) {
  return bit_cast<float>(bit_cast<uint32_t>(x) + (bits << 23));
}

// Bounds of arguments, beyond which a function is constant as a float. Variables, though nobody writes them: a clamp to a number
// that GCC knows costs a comparison, a blend and often a second copy of what follows, one to a variable is a single instruction.
ORTISAN_HIDDEN float exp_low = -105.0f;  // e^x is 0
ORTISAN_HIDDEN float exp_high = 90.0f;  // infinity
ORTISAN_HIDDEN float sigmoid_high = 105.0f;  // 1
ORTISAN_HIDDEN float tanh_high = 9.1f;  // 1
ORTISAN_HIDDEN float mish_high = 40.0f;  // mish is x

// Both keep NaN.
ORTISAN_BOTH inline float at_least(float x, float low) { return x < low ? low : x; }
ORTISAN_BOTH inline float at_most(float x, float high) { return high < x ? high : x; }

// x = n ln2 + r with |r| <= ln2 / 2. The low bits of `shifted` are n + bias.
struct ReducedExp {
  uint32_t shifted;
  float r;
};

template <int bias>
ORTISAN_BOTH inline ReducedExp reduce_exp(float x) {
  constexpr float shift = round_shift + static_cast<float>(bias);
  const float shifted = x * log2_e + shift;
  const float n = shifted - shift;
  return {bit_cast<uint32_t>(shifted), (x - n * ln2_high) - n * ln2_low};
}

// (e^r - 1 - r) / r^2 for |r| <= ln2 / 2.
ORTISAN_BOTH inline float exp_tail(float r) {
  float q = 0x1.6a23aep-10f;
  q = q * r + 0x1.123a24p-7f;
  q = q * r + 0x1.5558f4p-5f;
  q = q * r + 0x1.55549p-3f;
  return q * r + 0x1.fffffcp-2f;
}

ORTISAN_BOTH inline float exp_reduced(float r) { return (exp_tail(r) * r + 1.0f) * r + 1.0f; }

// 2^n as the product of two powers of two, for -252 <= n <= 254 and the n + 254 in the low 9 bits of `bits`.
struct TwoPowers {
  float first, second;
};

ORTISAN_BOTH inline TwoPowers two_powers(uint32_t bits) {
  const uint32_t first = bits >> 1;
  return {bit_cast<float>(first << 23), bit_cast<float>((bits - first) << 23)};
}

// e^x * 2^shift, with one rounding at the ends of the range.
template <int shift>
ORTISAN_BOTH inline float exp_shifted(float x) {
  const ReducedExp e = reduce_exp<254 + shift>(at_most(at_least(x, exp_low), exp_high));
  const TwoPowers scale = two_powers(e.shifted);
  return exp_reduced(e.r) * scale.first * scale.second;
}

ORTISAN_BOTH inline float with_sign_of(float positive, float x) {
  return bit_cast<float>(bit_cast<uint32_t>(positive) | (bit_cast<uint32_t>(x) & 0x80000000u));
}
ORTISAN_BOTH inline float negative_magnitude(float x) { return bit_cast<float>(bit_cast<uint32_t>(x) | 0x80000000u); }

// exponent * ln2 + log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1].
ORTISAN_BOTH inline float log_sum(float exponent, float f) {
  // Pairs, and pairs of pairs: the steps of one chain would wait for each other.
  const float f2 = f * f;
  const float p0 = 0x1.555554p-2f - 0x1.000228p-2f * f, p2 = 0x1.99a004p-3f - 0x1.54723p-3f * f;
  const float p4 = 0x1.22da8cp-3f - 0x1.0d8674p-3f * f, p6 = 0x1.0558d8p-3f - 0x1.38a8cap-4f * f;
  const float p = (p6 * f2 + p4) * (f2 * f2) + (p2 * f2 + p0);
  const float tail = fused(p, f * f2, exponent * ln2_low);
  return exponent * ln2_high + (f + (tail - 0.5f * f2));
}

// log(1 + z) for z in [0, 1]: z + z^2 times a polynomial of degree 8, relative error 5e-9.
ORTISAN_BOTH inline float log1p_of_share(float z) {
  const float z2 = z * z;
  float p = -0x1.b2f58p-9f;
  p = p * z + 0x1.4b0832p-6f;
  p = p * z - 0x1.d8632p-5f;
  p = p * z + 0x1.b579cp-4f;
  p = p * z - 0x1.3a7a8p-3f;
  p = p * z + 0x1.935cap-3f;
  p = p * z - 0x1.ff26e2p-3f;
  p = p * z + 0x1.554dfp-2f;
  p = p * z - 0x1.ffffd2p-2f;
  return p * z2 + z;
}

// The exponent e of a positive normal x such that x / 2^e is in [sqrt(1/2), sqrt(2)).
ORTISAN_BOTH inline int32_t centred_exponent(float x) {
  return static_cast<int32_t>(bit_cast<uint32_t>(x) - 0x3f3504f3u) >> 23;
}

// x / 2^exponent for that exponent.
ORTISAN_BOTH inline float centred_fraction(float x, int32_t exponent) {
  return bit_cast<float>(bit_cast<uint32_t>(x) - (static_cast<uint32_t>(exponent) << 23));
}

}  // namespace detail

ORTISAN_BOTH inline float exp(float x) { return detail::exp_shifted<0>(x); }
ORTISAN_BOTH inline double exp(double x) { return __builtin_exp(x); }

// e^x for x <= 0, or NaN. The exponent is kept 64 too high until the last multiplication, which rounds a subnormal.
ORTISAN_BOTH inline float exp_nonpositive(float x) {
  const detail::ReducedExp e = detail::reduce_exp<127 + 64>(detail::at_least(x, detail::exp_low));
  return detail::exp_reduced(e.r) * bit_cast<float>(e.shifted << 23) * 0x1p-64f;
}
ORTISAN_BOTH inline double exp_nonpositive(double x) { return __builtin_exp(x); }

// e^x - 1 without cancellation near zero.
ORTISAN_BOTH inline float expm1(float x) {
  const float clamped = detail::select(x > 89.0f, 89.0f, detail::select(x < -20.0f, -20.0f, x));
  const detail::ReducedExp e = detail::reduce_exp<-1>(clamped);
  const float scale = detail::add_exponent(1.0f, e.shifted);
  const float expm1_r = detail::exp_tail(e.r) * e.r * e.r + e.r;
  const float result = 2.0f * (expm1_r * scale + (scale - 0.5f));
  return detail::select(x == 0.0f, x, result);
}
ORTISAN_BOTH inline double expm1(double x) { return __builtin_expm1(x); }

ORTISAN_BOTH inline float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float normal = detail::select(subnormal, x * 0x1p23f, x);
  const int32_t e = detail::centred_exponent(normal);
  const float f = detail::centred_fraction(normal, e) - 1.0f;
  const float exponent = static_cast<float>(e) - detail::select(subnormal, 23.0f, 0.0f);
  float result = detail::log_sum(exponent, f);
  result = detail::select(x < limits<float>::infinity, result, x);
  result = detail::select(x == 0.0f, limits<float>::negative_infinity, result);
  return detail::select(x < 0.0f, limits<float>::quiet_nan, result);
}
ORTISAN_BOTH inline double log(double x) { return __builtin_log(x); }

// Versions of functions that take most arguments but not all, without what the others would cost. A loop looks whether an
// argument leaves the range (which is not 0 then), and runs again with the whole function when one does.
namespace common {

// Positive normal numbers are common.
ORTISAN_BOTH inline uint32_t leaves_log(float x) { return bit_cast<uint32_t>(x) - 0x00800000u < 0x7f000000u ? 0u : 1u; }

ORTISAN_BOTH inline float log(float x) {
  const int32_t e = detail::centred_exponent(x);
  return detail::log_sum(static_cast<float>(e), detail::centred_fraction(x, e) - 1.0f);
}

}  // namespace common

// log(1 + x) without cancellation near zero.
ORTISAN_BOTH inline float log1p(float x) {
  const int32_t e = detail::centred_exponent(1.0f + x);
  const float scale = detail::power_of_two(-e);
  const float small = x * scale + (scale - 1.0f);
  const float big = detail::centred_fraction(x, e) - 1.0f;
  float result = detail::log_sum(static_cast<float>(e), detail::select(x < 0x1p26f, small, big));
  result = detail::select(x < limits<float>::infinity, result, x);
  result = detail::select(x == -1.0f, limits<float>::negative_infinity, result);
  return detail::select(x < -1.0f, limits<float>::quiet_nan, detail::select(x == 0.0f, x, result));
}
ORTISAN_BOTH inline double log1p(double x) { return __builtin_log1p(x); }

ORTISAN_BOTH inline float sinh(float x) {
  const float a = __builtin_fabsf(x);
  const float t = expm1(a);
  const float small = 0.5f * (t + t / (t + 1.0f));
  return __builtin_copysignf(detail::select(a < 10.0f, small, detail::exp_shifted<-1>(a)), x);
}
ORTISAN_BOTH inline double sinh(double x) { return __builtin_sinh(x); }

ORTISAN_BOTH inline float cosh(float x) {
  const float half_exp = detail::exp_shifted<-1>(__builtin_fabsf(x));
  return half_exp + 0.25f / half_exp;
}
ORTISAN_BOTH inline double cosh(double x) { return __builtin_cosh(x); }

// (1 - z) / (1 + z), z = e^(-2|x|) = 2^n + 2^n (e^(-2r) - 1), |x| = r - n ln2 / 2.
// (e^(-2r) - 1) / r for |r| <= ln2 / 4: degree 5, relative error 1e-8.
ORTISAN_BOTH inline float tanh(float x) {
  constexpr float shift = detail::round_shift + 127.0f;
  const float a = detail::at_most(__builtin_fabsf(x), detail::tanh_high);
  const float shifted = shift - a * (2.0f * detail::log2_e);
  const float r = a + (shifted - shift) * 0.346573590f;
  float q = 0x1.6b97b6p-4f;
  q = q * r - 0x1.122538p-2f;
  q = q * r + 0x1.5556f6p-1f;
  q = q * r - 0x1.5554b4p+0f;
  q = q * r + 0x1.fffffep+0f;
  q = q * r - 2.0f;
  const float scale = bit_cast<float>(bit_cast<uint32_t>(shifted) << 23);
  const float scaled = r * scale;
  const float result = ((1.0f - scale) - q * scaled) / ((1.0f + scale) + q * scaled);
  return detail::with_sign_of(result, x);
}
ORTISAN_BOTH inline double tanh(double x) { return __builtin_tanh(x); }

ORTISAN_BOTH inline float asinh(float x) {
  const float a = __builtin_fabsf(x);
  const bool huge = a > 0x1p30f;
  const float a2 = a * a;
  const float near = a + a2 / (1.0f + sqrt(1.0f + a2));
  const float result = log1p(detail::select(huge, a, near)) + detail::select(huge, 0.693147181f, 0.0f);
  return __builtin_copysignf(result, x);
}
ORTISAN_BOTH inline double asinh(double x) { return __builtin_asinh(x); }

ORTISAN_BOTH inline float acosh(float x) {
  const float t = x - 1.0f;
  const bool huge = x > 0x1p30f;
  const float near = t + sqrt(t * (t + 2.0f));
  const float result = log1p(detail::select(huge, x, near)) + detail::select(huge, 0.693147181f, 0.0f);
  return detail::select(x < 1.0f, limits<float>::quiet_nan, result);
}
ORTISAN_BOTH inline double acosh(double x) { return __builtin_acosh(x); }

ORTISAN_BOTH inline float atanh(float x) {
  const float a = __builtin_fabsf(x);
  return __builtin_copysignf(0.5f * log1p(2.0f * a / (1.0f - a)), x);
}
ORTISAN_BOTH inline double atanh(double x) { return __builtin_atanh(x); }

// 1 / (1 + e^(-x)) = up / (up + down e^r) with x = n ln2 - r, 2^n = up / down, so that neither overflows. The bias of 256 leaves
// the sign bit of `down` set.
ORTISAN_BOTH inline float sigmoid(float x) {
  constexpr float shift = detail::round_shift + 256.0f;
  const float a = detail::at_most(detail::at_least(x, detail::exp_low), detail::sigmoid_high);
  const float shifted = a * detail::log2_e + shift;
  const float n = shifted - shift;
  const float r = (n * detail::ln2_high - a) + n * detail::ln2_low;
  const uint32_t bits = bit_cast<uint32_t>(shifted), first = bits >> 1;
  const float up = bit_cast<float>(first << 23), minus_down = bit_cast<float>((first - bits) << 23);
  return up / (up - minus_down * detail::exp_reduced(r));
}
ORTISAN_BOTH inline double sigmoid(double x) {
  const double z = __builtin_exp(-__builtin_fabs(x));
  return (x < 0.0 ? z : 1.0) / (1.0 + z);
}

}  // namespace ortisan::fn
