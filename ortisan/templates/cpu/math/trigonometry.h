// sin, cos, tan and their inverses, without branches, so that loops calling them vectorise.
//
// Floats of any size are reduced exactly: 2/pi is cut in pieces of 29 bits, whose products with a float are exact in double,
// and each product is reduced mod 4 before they are added. The versions in `common` take angles up to 1e5 only, and are several
// times as fast: pi/2 is cut in three floats, whose products are exact in a fused multiply-add. Doubles: the C library.
#pragma once

#include "macros.h"
#include "types.h"

namespace ortisan::fn {

namespace detail {

// x = (quadrant + 4 i) pi/2 + r with |r| <= pi/4, and sin(r), cos(r).
struct ReducedAngle {
  uint32_t quadrant;
  float sine;
  float cosine;
};

// The low two bits of `turns` are the quadrant.
ORTISAN_BOTH inline ReducedAngle at_angle(uint32_t turns, float r) {
  const float z = r * r;
  float s = -0x1.99438p-13f;
  s = s * z + 0x1.11073ap-7f;
  s = s * z - 0x1.555546p-3f;
  float c = 0x1.99eb36p-16f;
  c = c * z - 0x1.6c0c32p-10f;
  c = c * z + 0x1.55554ap-5f;
  return {turns, s * (z * r) + r, (c * z) * z + (1.0f - 0.5f * z)};
}

ORTISAN_BOTH inline ReducedAngle reduce_angle(float x) {
  // The bits of 2/pi, piece after piece; piece i is a multiple of 2^(-29 (i + 1)).
  static constexpr double two_over_pi[7] = {0x145f306dp-29,  0x19391054p-58,  0x14fe13abp-87, 0x1d1f534dp-116,
                                            0x1b81b6c5p-145, 0x05664f10p-174, 0x1c820ff2p-203};
  double piece[7];
  double turns = 0.0;
  for (int i = 6; i >= 0; --i) {
    const double product = static_cast<double>(x) * two_over_pi[i];
    piece[i] = product - 4.0 * __builtin_rint(0.25 * product);
    turns += piece[i];
  }
  turns = __builtin_rint(turns);
  double rest = piece[0] - turns;
  for (int i = 1; i < 7; ++i) rest += piece[i];
  // -14 <= turns <= 14, or NaN
  const int32_t whole = static_cast<int32_t>(turns == turns ? turns : 0.0);
  ReducedAngle angle = at_angle(static_cast<uint32_t>(whole), static_cast<float>(rest * 1.57079632679489661923));
  angle.sine = x == 0.0f ? x : angle.sine;
  return angle;
}

ORTISAN_BOTH inline float flip_sign(float x, uint32_t bit_one) {
  return bit_cast<float>(bit_cast<uint32_t>(x) ^ ((bit_one & 2u) << 30));
}

ORTISAN_BOTH inline float sin_of(const ReducedAngle& a) {
  return flip_sign((a.quadrant & 1u) != 0u ? a.cosine : a.sine, a.quadrant);
}
ORTISAN_BOTH inline float cos_of(const ReducedAngle& a) {
  return flip_sign((a.quadrant & 1u) != 0u ? a.sine : a.cosine, a.quadrant + 1u);
}
ORTISAN_BOTH inline float tan_of(const ReducedAngle& a) {
  const bool odd = (a.quadrant & 1u) != 0u;
  return (odd ? -a.cosine : a.sine) / (odd ? a.sine : a.cosine);
}

#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDA_ARCH__)
constexpr float common_angle = 1e5f;

// x >= 0
ORTISAN_BOTH inline ReducedAngle reduce_common_angle(float x) {
  constexpr float shift = 0x1.8p23f;
  const float shifted = x * 0.636619772f + shift;
  const float turns = shifted - shift;
  float r = __builtin_fmaf(turns, -0x1.921fb6p+0f, x);
  r = __builtin_fmaf(turns, 0x1.777a5cp-25f, r);
  r = __builtin_fmaf(turns, 0x1.ee59dap-50f, r);
  return at_angle(bit_cast<uint32_t>(shifted), r);
}
#else
constexpr float common_angle = limits<float>::infinity;

ORTISAN_BOTH inline ReducedAngle reduce_common_angle(float x) { return reduce_angle(x); }
#endif

ORTISAN_BOTH inline float flip_sign_with(float y, float x) {
  return bit_cast<float>(bit_cast<uint32_t>(y) ^ (bit_cast<uint32_t>(x) & 0x80000000u));
}

ORTISAN_BOTH inline uint32_t is_large_angle(float x) { return __builtin_fabsf(x) <= common_angle ? 0u : 1u; }

// asin(x) for |x| <= 1/2.
ORTISAN_BOTH inline float asin_small(float x) {
  const float z = x * x;
  float p = 0x1.596a8ap-5f;
  p = p * z + 0x1.8c2b0cp-6f;
  p = p * z + 0x1.747e0ep-5f;
  p = p * z + 0x1.3301e6p-4f;
  p = p * z + 0x1.5555c8p-3f;
  return p * (z * x) + x;
}

}  // namespace detail

namespace common {

ORTISAN_BOTH inline uint32_t leaves_sin(float x) { return detail::is_large_angle(x); }
ORTISAN_BOTH inline uint32_t leaves_cos(float x) { return detail::is_large_angle(x); }
ORTISAN_BOTH inline uint32_t leaves_tan(float x) { return detail::is_large_angle(x); }

ORTISAN_BOTH inline float sin(float x) {
  return detail::flip_sign_with(detail::sin_of(detail::reduce_common_angle(__builtin_fabsf(x))), x);
}
ORTISAN_BOTH inline float cos(float x) { return detail::cos_of(detail::reduce_common_angle(__builtin_fabsf(x))); }
ORTISAN_BOTH inline float tan(float x) {
  return detail::flip_sign_with(detail::tan_of(detail::reduce_common_angle(__builtin_fabsf(x))), x);
}

}  // namespace common

// An angle gives the same bits whether or not it is beside a large one.
ORTISAN_BOTH inline float sin(float x) {
  return detail::is_large_angle(x) != 0u ? detail::sin_of(detail::reduce_angle(x)) : common::sin(x);
}
ORTISAN_BOTH inline double sin(double x) { return __builtin_sin(x); }

ORTISAN_BOTH inline float cos(float x) {
  return detail::is_large_angle(x) != 0u ? detail::cos_of(detail::reduce_angle(x)) : common::cos(x);
}
ORTISAN_BOTH inline double cos(double x) { return __builtin_cos(x); }

ORTISAN_BOTH inline float tan(float x) {
  return detail::is_large_angle(x) != 0u ? detail::tan_of(detail::reduce_angle(x)) : common::tan(x);
}
ORTISAN_BOTH inline double tan(double x) { return __builtin_tan(x); }

ORTISAN_BOTH inline float asin(float x) {
  const float a = __builtin_fabsf(x);
  const bool big = a > 0.5f;
  const float half_angle = __builtin_sqrtf(0.5f - 0.5f * a);
  const float t = detail::asin_small(big ? half_angle : a);
  return __builtin_copysignf(big ? 1.57079637f - (2.0f * t + 4.37113883e-8f) : t, x);
}
ORTISAN_BOTH inline double asin(double x) { return __builtin_asin(x); }

ORTISAN_BOTH inline float acos(float x) {
  const float a = __builtin_fabsf(x);
  const bool big = a > 0.5f;
  const float half_angle = __builtin_sqrtf(0.5f - 0.5f * a);
  const float t = detail::asin_small(big ? half_angle : x);
  const float far = x < 0.0f ? 3.14159274f - (2.0f * t + 8.74227766e-8f) : 2.0f * t;
  return big ? far : 1.57079637f - (t + 4.37113883e-8f);
}
ORTISAN_BOTH inline double acos(double x) { return __builtin_acos(x); }

ORTISAN_BOTH inline float atan(float x) {
  const float a = __builtin_fabsf(x);
  const bool big = a > 1.0f;
  const float t = big ? -1.0f / a : a;
  const float z = t * t;
  float p = -0x1.d62632p-10f;
  p = p * z + 0x1.65a0e2p-7f;
  p = p * z - 0x1.fecc44p-6f;
  p = p * z + 0x1.dac754p-5f;
  p = p * z - 0x1.5833d2p-4f;
  p = p * z + 0x1.c099bep-4f;
  p = p * z - 0x1.2421bp-3f;
  p = p * z + 0x1.9991fcp-3f;
  p = p * z - 0x1.55553ep-2f;
  const float near = p * (z * t) + t;
  return __builtin_copysignf(big ? 1.57079637f + (near - 4.37113883e-8f) : near, x);
}
ORTISAN_BOTH inline double atan(double x) { return __builtin_atan(x); }

}  // namespace ortisan::fn
