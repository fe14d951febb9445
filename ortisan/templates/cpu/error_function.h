// erf and gelu, without branches, so that loops calling them vectorise.
//
// The logarithm of a normal distribution's tail is smooth: near-minimax polynomials of it, and an exponential, cover the whole
// range in one formula that cancels nowhere. Doubles: the C library.
#pragma once

#include "elementary.h"

namespace ortisan::fn {

// 1 - e^g, g = log(erfc(|x|)) as a polynomial of a = -|x|; e^g = 2^n e^r.
inline float erf(float x) {
  constexpr float shift = detail::round_shift + 127.0f;
  constexpr float slope = 0x1.20dd76p+0f;  // 2 / sqrt(pi), whose rest is the last coefficient
  const float a = detail::negative_magnitude(x);
  const float z = a * a;
  float even = -0x1.390acp-17f, odd = -0x1.f046bp-14f;
  even = even * z - 0x1.4d1fcap-11f;
  odd = odd * z - 0x1.b64bd2p-10f;
  even = even * z - 0x1.5b85aap-13f;
  odd = odd * z + 0x1.39c08cp-6f;
  even = even * z + 0x1.a4f95cp-4f;
  odd = odd * z - 0x1.45f2fep-1f;
  even = even * z - 0x1.f7ac92p-25f;
  const float g = odd * a + even;
  const float logarithm = a * g + a * slope;  // in this order GCC rounds only the small product
  const float shifted = logarithm * detail::log2_e + shift;
  const float r = logarithm - (shifted - shift) * 0.693147181f;
  const float scale = bit_cast<float>(bit_cast<uint32_t>(shifted) << 23);
  const float expm1_r = detail::exp_tail(r) * (r * r) + r;
  const float result = (1.0f - scale) - expm1_r * scale;
  return detail::with_sign_of(detail::select(a < -3.95f, 1.0f, result), x);
}
inline double erf(double x) { return __builtin_erf(x); }

// x Phi(x) = max(x, 0) - |x| Phi(-|x|) = 0.5 x (1 + erf(x / sqrt(2))), Phi(-a) = e^(w(a) - a^2 / 2) = 2^n e^r.
// From 5.25 on w stays as it is there, when the product is below 1e-6 and on its way to 0.
inline float gelu(float x) {
  constexpr float shift = detail::round_shift + 64.0f;
  const float a = detail::clamp_above(__builtin_fabsf(x), 16.0f);
  const float b = detail::clamp_above(a, 5.25f);
  const float z = b * b;
  float even = -0x1.0456acp-26f, odd = 0x1.ef9cb6p-22f;
  even = even * z - 0x1.96b17p-18f;
  odd = odd * z + 0x1.6bc44ap-15f;
  even = even * z - 0x1.4c15dcp-13f;
  odd = odd * z - 0x1.4a74eep-14f;
  even = even * z + 0x1.425586p-8f;
  odd = odd * z - 0x1.2a63d6p-5f;
  even = even * z + 0x1.74291cp-3f;
  odd = odd * z - 0x1.9884cap-1f;
  even = even * z - 0x1.62e42ep-1f;
  const float w = odd * b + even;
  const float half_square = (0.5f * a) * a;
  const float shifted = (w - half_square) * detail::log2_e + shift;
  const float n = shifted - shift;
  const float r = ((w - n * detail::ln2_high) - half_square) - n * detail::ln2_low;
  const float tail = detail::add_exponent(detail::exp_reduced(r), bit_cast<uint32_t>(shifted)) * 0x1p-64f;
  return detail::select(x < 0.0f, x * 0.0f, x) - a * tail;
}
inline double gelu(double x) { return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440); }

}  // namespace ortisan::fn
