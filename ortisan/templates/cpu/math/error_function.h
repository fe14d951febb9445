// erf and gelu, without branches, so that loops calling them vectorise. Doubles: the C library.
#pragma once

#include "elementary.h"

namespace ortisan::fn {

namespace detail {

ORTISAN_HIDDEN float erf_high = 4.0f;     // erf is 1 from here on
ORTISAN_HIDDEN float gelu_high = 13.27f;  // Phi(-a) comes out as 0 here

}  // namespace detail

// erf(a) = v / (1 + v) with 1 + v = 1 / erfc(a) = (1 + u / 4)^4. Nothing cancels, and near 1 the errors of v vanish.
// u / a is a polynomial on [0, 4]: degree 10, relative error 1.8e-8 of erf. The first coefficient has a rest of its own.
ORTISAN_BOTH inline float erf(float x) {
  const float a = detail::at_most(__builtin_fabsf(x), detail::erf_high);
  float q = 0x1.cebcb2p-14f;
  q = q * a - 0x1.94fe44p-11f;
  q = q * a + 0x1.7ba592p-9f;
  q = q * a - 0x1.39eff8p-8f;
  q = q * a + 0x1.0cbbdep-7f;
  q = q * a + 0x1.1afa66p-8f;
  q = q * a + 0x1.136b5cp-5f;
  q = q * a + 0x1.61ef58p-4f;
  q = q * a + 0x1.3085d4p-2f;
  q = q * a + 0x1.976f6ep-1f;
  q = q * a - 0x1.4f9eep-25f;
  const float u = detail::fused(a, 0x1.20dd76p+0f, a * q);
  const float v = (u * u) * ((0x1p-8f * u + 0.0625f) * u + 0.375f) + u;
  return detail::with_sign_of(v / (v + 1.0f), x);
}
ORTISAN_BOTH inline double erf(double x) { return __builtin_erf(x); }

// x Phi(x) = x Phi(-a) below 0, else x (1 - Phi(-a)), a = |x|, Phi(-a) = e^(-a^2 / 2) P(a) / Q(a), e^(-a^2 / 2) = 2^n e^(-r / 2).
// P / Q: degrees 3 and 4 on [0, 6.5], relative error 1.5e-8 at 0 and 1.5e-7 in the tail. e^(-r / 2) for |r| <= ln2: degree 5,
// relative error 9e-8 at the ends.
ORTISAN_BOTH inline float gelu(float x) {
  constexpr float shift = detail::round_shift + 127.0f;
  const float a = detail::at_most(__builtin_fabsf(x), detail::gelu_high);
  const float z = a * a;
  const float shifted = z * (-0.5f * detail::log2_e) + shift;
  const float r = z + (shifted - shift) * 1.38629436f;
  float e = -0x1.0fa7d6p-12f;
  e = e * r + 0x1.573ad2p-9f;
  e = e * r - 0x1.555a6ep-6f;
  e = e * r + 0x1.fffdc4p-4f;
  e = e * r - 0x1.fffff6p-2f;
  e = e * r + 1.0f;
  float p = 0x1.ae6238p-7f;
  p = p * a + 0x1.a323fp-4f;
  p = p * a + 0x1.52b70ep-2f;
  p = p * a + 0.5f;
  float q = 0x1.0de264p-5f;
  q = q * a + 0x1.060ce6p-2f;
  q = q * a + 0x1.bcff5cp-1f;
  q = q * a + 0x1.759d9cp+0f;
  q = q * a + 1.0f;
  const float scale = bit_cast<float>(bit_cast<uint32_t>(shifted) << 23);
  const float below = (p * (e * scale)) / q;  // Phi(-a)
  return x * (x < 0.0f ? below : 1.0f - below);
}
ORTISAN_BOTH inline double gelu(double x) { return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440); }

}  // namespace ortisan::fn
