// erf and gelu, without branches, so that loops calling them vectorise.
//
// The logarithm of a normal distribution's tail is smooth: near-minimax polynomials of it, and a power of two, cover the whole
// range in one formula that cancels nowhere. Doubles: the C library.
#pragma once

#include "elementary.h"

namespace ortisan::fn {

// 1 - 2^(-a g(a)), a = |x|, where g(a) = -log2(erfc(a)) / a.
inline float erf(float x) {
  constexpr float shift = detail::round_shift + 127.0f;
  const float a = __builtin_fabsf(x);
  float g = 0x1.b163bep-17f;
  g = g * a - 0x1.5c096cp-13f;
  g = g * a + 0x1.d7fc5cp-11f;
  g = g * a - 0x1.38602p-9f;
  g = g * a + 0x1.bb864cp-13f;
  g = g * a + 0x1.c4e13p-6f;
  g = g * a - 0x1.2fad08p-3f;
  g = g * a - 0x1.d63ebep-1f;
  g = g * a - 0x1.a0be84p+0f;
  const float power = g * a;
  const float shifted = power + shift;
  const float f = power - (shifted - shift);
  const float scale = bit_cast<float>(bit_cast<uint32_t>(shifted) << 23);
  float q = 0x1.429584p-13f;
  q = q * f + 0x1.5ef13cp-10f;
  q = q * f + 0x1.3b2c3ep-7f;
  q = q * f + 0x1.c6afa4p-5f;
  q = q * f + 0x1.ebfbdep-3f;
  q = q * f + 0x1.62e43p-1f;
  const float result = (1.0f - scale) - (q * f) * scale;
  return __builtin_copysignf(detail::select(a > 3.95f, 1.0f, result), x);
}
inline double erf(double x) { return __builtin_erf(x); }

// x Phi(x) = max(x, 0) - |x| Phi(-|x|) = 0.5 x (1 + erf(x / sqrt(2))), Phi(-a) = 2^(-a^2 log2(e) / 2 - w(a)).
// Above 5.5 w stays as it is there: the product is below 1e-7 and falls faster than any float could tell.
inline float gelu(float x) {
  constexpr float half_log2_e = 0.721347520f;
  const float low = detail::select(x > 16.0f, 16.0f, x);  // an infinity must not meet a tail of 0
  const float a = __builtin_fabsf(low);
  const float b = detail::clamp_above(a, 5.5f);
  float w = -0x1.801afp-26f;
  w = w * b + 0x1.6f0f7ep-21f;
  w = w * b - 0x1.2db252p-17f;
  w = w * b + 0x1.0e0008p-14f;
  w = w * b - 0x1.ef29e8p-13f;
  w = w * b - 0x1.8b816ap-14f;
  w = w * b + 0x1.cf231p-8f;
  w = w * b - 0x1.ae4a28p-5f;
  w = w * b + 0x1.0c727cp-2f;
  w = w * b - 0x1.26afp+0f;
  w = w * b - 0x1.fffffep-1f;
  constexpr float shift = detail::round_shift + 64.0f;
  const float square = a * a;
  const float shifted = (w - square * half_log2_e) + shift;
  const float f = (w - (shifted - shift)) - square * half_log2_e;
  float p = 0x1.416b52p-13f;
  p = p * f + 0x1.5f082ep-10f;
  p = p * f + 0x1.3b2dep-7f;
  p = p * f + 0x1.c6af7cp-5f;
  p = p * f + 0x1.ebfbdcp-3f;
  p = p * f + 0x1.62e43p-1f;
  p = p * f + 1.0f;
  const float tail = detail::add_exponent(p, bit_cast<uint32_t>(shifted)) * 0x1p-64f;
  return detail::select(x < 0.0f, 0.0f, x) - a * detail::select(a > 14.0f, 0.0f, tail);
}
inline double gelu(double x) { return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440); }

}  // namespace ortisan::fn
