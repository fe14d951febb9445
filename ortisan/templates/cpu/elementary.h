// exp, log and the functions built from them, without branches, so that loops calling them vectorise.
//
// Floats: range reduction and near-minimax polynomials on the reduced interval, in float arithmetic. Doubles: the C library.
// NaN, infinities, signed zeros and subnormals come out as in the C library.
#pragma once

#include "arithmetic.h"
#include "types.h"

namespace ortisan::fn {

namespace detail {

constexpr float log2_e = 1.44269504f;
constexpr float ln2_high = 0x1.63p-1f;  // few bits, so that its product with an exponent is exact
constexpr float ln2_low = -2.12194440e-4f;
constexpr float round_shift = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits of the sum
constexpr int32_t round_shift_bits = 0x4b400000;

inline float select(bool condition, float a, float b) { return condition ? a : b; }

inline float power_of_two(int32_t exponent) { return bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

// x = n ln2 + r with |r| <= ln2 / 2, and the polynomial e^r - 1 = r + r^2 q(r).
struct ReducedExp {
  int32_t n;
  float expm1_r;
};

inline ReducedExp reduce_exp(float x) {
  const float shifted = x * log2_e + round_shift;
  const float n = shifted - round_shift;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float q = 0x1.6a23aep-10f;
  q = q * r + 0x1.123a24p-7f;
  q = q * r + 0x1.5558f4p-5f;
  q = q * r + 0x1.55549p-3f;
  q = q * r + 0x1.fffffcp-2f;
  return {bit_cast<int32_t>(shifted) - round_shift_bits, q * r * r + r};
}

// e^x * 2^shift, with one rounding at the ends of the range.
inline float exp_shifted(float x, int32_t shift) {
  x = select(x > 90.0f, 90.0f, x);
  x = select(x < -105.0f, -105.0f, x);
  const ReducedExp e = reduce_exp(x);
  const int32_t n = e.n + shift;
  const int32_t first = n >> 1;
  return (e.expm1_r + 1.0f) * power_of_two(first) * power_of_two(n - first);
}

// exponent * ln2 + log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1].
inline float log_sum(float exponent, float f) {
  float p = -0x1.38a8cap-4f;
  p = p * f + 0x1.0558d8p-3f;
  p = p * f - 0x1.0d8674p-3f;
  p = p * f + 0x1.22da8cp-3f;
  p = p * f - 0x1.54723p-3f;
  p = p * f + 0x1.99a004p-3f;
  p = p * f - 0x1.000228p-2f;
  p = p * f + 0x1.555554p-2f;
  const float f2 = f * f;
  const float tail = (p * f) * f2 + exponent * ln2_low;
  return exponent * ln2_high + (f + (tail - 0.5f * f2));
}

// The exponent e of a positive normal x such that x / 2^e is in [sqrt(1/2), sqrt(2)).
inline int32_t centred_exponent(float x) {
  return static_cast<int32_t>(bit_cast<uint32_t>(x) - 0x3f3504f3u) >> 23;
}

// x / 2^exponent for that exponent.
inline float centred_fraction(float x, int32_t exponent) {
  return bit_cast<float>(bit_cast<uint32_t>(x) - (static_cast<uint32_t>(exponent) << 23));
}

// e^(-a^2) t p(t), t = 1 / (1 + 0.48 a): the complementary error function of a >= 0, given a^2.
inline float erfc_positive(float a, float a_squared) {
  const float t = 1.0f / (1.0f + 0.48f * a);
  float p = -0x1.a407ccp-5f;
  p = p * t + 0x1.1a27bap-2f;
  p = p * t - 0x1.15c9bcp-1f;
  p = p * t + 0x1.9d26cp-2f;
  p = p * t - 0x1.69b69ap-4f;
  p = p * t + 0x1.d7f084p-3f;
  p = p * t + 0x1.d76594p-3f;
  p = p * t + 0x1.16434ap-2f;
  p = p * t + 0x1.15454ap-2f;
  return exp_shifted(-a_squared, 0) * (p * t);
}

}  // namespace detail

inline float exp(float x) { return detail::exp_shifted(x, 0); }
inline double exp(double x) { return __builtin_exp(x); }

// e^x - 1 without cancellation near zero.
inline float expm1(float x) {
  const float clamped = detail::select(x > 89.0f, 89.0f, detail::select(x < -20.0f, -20.0f, x));
  const detail::ReducedExp e = detail::reduce_exp(clamped);
  const float scale = detail::power_of_two(e.n - 1);
  const float result = 2.0f * (e.expm1_r * scale + (scale - 0.5f));
  return detail::select(x == 0.0f, x, result);
}
inline double expm1(double x) { return __builtin_expm1(x); }

inline float log(float x) {
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
inline double log(double x) { return __builtin_log(x); }

// log(1 + x) without cancellation near zero.
inline float log1p(float x) {
  const int32_t e = detail::centred_exponent(1.0f + x);
  const float scale = detail::power_of_two(-e);
  const float small = x * scale + (scale - 1.0f);
  const float big = detail::centred_fraction(x, e) - 1.0f;
  float result = detail::log_sum(static_cast<float>(e), detail::select(x < 0x1p26f, small, big));
  result = detail::select(x < limits<float>::infinity, result, x);
  result = detail::select(x == -1.0f, limits<float>::negative_infinity, result);
  return detail::select(x < -1.0f, limits<float>::quiet_nan, detail::select(x == 0.0f, x, result));
}
inline double log1p(double x) { return __builtin_log1p(x); }

inline float sinh(float x) {
  const float a = __builtin_fabsf(x);
  const float t = expm1(a);
  const float small = 0.5f * (t + t / (t + 1.0f));
  return __builtin_copysignf(detail::select(a < 10.0f, small, detail::exp_shifted(a, -1)), x);
}
inline double sinh(double x) { return __builtin_sinh(x); }

inline float cosh(float x) {
  const float half_exp = detail::exp_shifted(__builtin_fabsf(x), -1);
  return half_exp + 0.25f / half_exp;
}
inline double cosh(double x) { return __builtin_cosh(x); }

inline float tanh(float x) {
  const float a = __builtin_fabsf(x);
  const float z = x * x;
  float p = -0x1.75e0fap-8f;
  p = p * z + 0x1.522668p-6f;
  p = p * z - 0x1.b83c5p-5f;
  p = p * z + 0x1.110726p-3f;
  p = p * z - 0x1.555532p-2f;
  const float near = p * (z * x) + x;
  const float far = 1.0f - 2.0f / (1.0f + exp(2.0f * a));
  return __builtin_copysignf(detail::select(a < 0.625f, near, far), x);
}
inline double tanh(double x) { return __builtin_tanh(x); }

inline float asinh(float x) {
  const float a = __builtin_fabsf(x);
  const bool huge = a > 0x1p30f;
  const float a2 = a * a;
  const float near = a + a2 / (1.0f + sqrt(1.0f + a2));
  const float result = log1p(detail::select(huge, a, near)) + detail::select(huge, 0.693147181f, 0.0f);
  return __builtin_copysignf(result, x);
}
inline double asinh(double x) { return __builtin_asinh(x); }

inline float acosh(float x) {
  const float t = x - 1.0f;
  const bool huge = x > 0x1p30f;
  const float near = t + sqrt(t * (t + 2.0f));
  const float result = log1p(detail::select(huge, x, near)) + detail::select(huge, 0.693147181f, 0.0f);
  return detail::select(x < 1.0f, limits<float>::quiet_nan, result);
}
inline double acosh(double x) { return __builtin_acosh(x); }

inline float atanh(float x) {
  const float a = __builtin_fabsf(x);
  return __builtin_copysignf(0.5f * log1p(2.0f * a / (1.0f - a)), x);
}
inline double atanh(double x) { return __builtin_atanh(x); }

inline float sigmoid(float x) {
  const float z = exp(-__builtin_fabsf(x));
  return detail::select(x < 0.0f, z, 1.0f) / (1.0f + z);
}
inline double sigmoid(double x) {
  const double z = __builtin_exp(-__builtin_fabs(x));
  return (x < 0.0 ? z : 1.0) / (1.0 + z);
}

inline float erf(float x) {
  const float a = __builtin_fabsf(x);
  const float z = x * x;
  float p = 0x1.49631cp-14f;
  p = p * z - 0x1.a3f45p-11f;
  p = p * z + 0x1.540550p-8f;
  p = p * z - 0x1.b7f9p-6f;
  p = p * z + 0x1.ce2cf6p-4f;
  p = p * z - 0x1.81273ep-2f;
  p = p * z + 0x1.06eba8p-3f;
  const float near = p * x + x;
  return detail::select(a < 1.0f, near, __builtin_copysignf(1.0f - detail::erfc_positive(a, z), x));
}
inline double erf(double x) { return __builtin_erf(x); }

// x Phi(x) = 0.5 x (1 + erf(x / sqrt(2))); the lower tail is taken directly, so nothing cancels for negative x.
inline float gelu(float x) {
  const float a = __builtin_fabsf(x);
  const float tail = 0.5f * detail::erfc_positive(a * 0.707106781f, 0.5f * x * x);
  const float above = detail::select(x > 16.0f, 16.0f, x);  // the tail is 0 long before; an infinity must not meet it
  return detail::select(x > 0.0f, -above, x) * tail + detail::select(x > 0.0f, x, -0.0f);
}
inline double gelu(double x) { return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440); }

}  // namespace ortisan::fn
