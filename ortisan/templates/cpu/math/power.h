// pow for every pair of base and exponent types; the result has the type of the base.
//
// float^y is 2^(y log2|x|) in double arithmetic, without branches, so that loops calling it vectorise; the special cases are
// those of the C library. Integers to integer powers wrap; other pairs go through double.
#pragma once

#include "macros.h"
#include "types.h"

namespace ortisan::fn {

namespace detail {

// log2 of a positive finite x: the exponent plus 2/ln2 atanh((m - 1) / (m + 1)). atanh for m in [sqrt(1/2), sqrt(2)]: degree 11,
// relative error 2^-45.
ORTISAN_BOTH inline double log2_wide(double x) {
  const uint64_t bits = bit_cast<uint64_t>(x);
  const uint64_t offset = bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  const uint64_t biased = offset >> 52;
  const double m = bit_cast<double>(bits - (biased << 52) + (uint64_t(1023) << 52));
  const double exponent = bit_cast<double>(biased | 0x4330000000000000u) - (0x1p52 + 1023.0);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double z2 = z * z;
  const double p0 = 0x1.999996a8f178cp-3 * z + 0x1.555555561e616p-2,
               p2 = 0x1.c62b0698e6390p-4 * z + 0x1.249412163b0a9p-3;
  const double p = (0x1.9116662db37d0p-4 * z2 + p2) * z2 + p0;
  return exponent + 2.88539008177792681472 * (p * (z * s) + s);
}

// 2^x for |x| <= 200: e^(r ln2) at the distance r to the nearest integer, degree 7, relative error 2^-34.
ORTISAN_BOTH inline double exp2_wide(double x) {
  constexpr double shift = 0x1.8p52;
  const double shifted = x + shift;
  const double r = (x - (shifted - shift)) * 0.69314718055994530942;
  const double r2 = r * r;
  const double p2 = 0x1.55555598044a0p-3 * r + 0x1.00000042eed8ep-1,
               p4 = 0x1.11107cea06d36p-7 * r + 0x1.5554804ffe8f4p-5;
  const double p6 = 0x1.a1b80c8299d38p-13 * r + 0x1.6d968aa09680dp-10;
  const double p = ((p6 * r2 + p4) * r2 + p2) * r2 + (r + 1.0);
  return p * bit_cast<double>((bit_cast<uint64_t>(shifted) + 1023u) << 52);
}

// Conditions are nested selects of one width rather than && and ||: GCC 12 vectorises only those.
ORTISAN_BOTH inline float pow_float(float x, double y) {
  const float a = __builtin_fabsf(x);
  const float yf = static_cast<float>(y);
  double logarithm = log2_wide(a);
  // A logarithm this large saturates every product but the one with y == 0.
  logarithm = a == 0.0f ? -1e300 : logarithm;
  logarithm = a == limits<float>::infinity ? 1e300 : logarithm;
  double power = y * logarithm;
  power = power > 200.0 ? 200.0 : power;
  power = power < -200.0 ? -200.0 : power;
  // 0 for even y, 1 for odd y, between them or 2 for a fraction, NaN for an infinity.
  const float parity = static_cast<float>(y - 2.0 * __builtin_floor(0.5 * y));
  const float fraction = parity > 0.0f ? (parity == 1.0f ? 0.0f : 1.0f) : 0.0f;
  const float no_real_root = x < 0.0f ? (a < limits<float>::infinity ? fraction : 0.0f) : 0.0f;
  float result = static_cast<float>(exp2_wide(power));
  result = x == x ? result : x;
  result = a == 1.0f ? (yf == yf ? 1.0f : result) : result;
  result = parity == 1.0f ? __builtin_copysignf(result, x) : result;
  result = no_real_root > 0.0f ? limits<float>::quiet_nan : result;
  result = x == 1.0f ? 1.0f : result;
  return yf == 0.0f ? 1.0f : result;
}

// base^exponent modulo the width of T. A negative exponent gives the truncated quotient; 0 to one gives the lowest value.
template <class T, class E>
ORTISAN_BOTH inline T pow_integer(T base, E exponent) {
  using U = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;
  if (exponent < E(0)) {
    if (base == T(0)) return std::numeric_limits<T>::lowest();
    if (base == T(1)) return T(1);
    if (base == static_cast<T>(-1) && std::is_signed_v<T>) return (exponent & 1) != 0 ? base : T(1);
    return T(0);
  }
  U result = 1;
  U square = static_cast<U>(base);
  for (uint64_t rest = static_cast<uint64_t>(exponent); rest != 0; rest >>= 1) {
    if ((rest & 1) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

}  // namespace detail

template <class T, class E>
ORTISAN_BOTH inline T pow(T base, E exponent) {
  if constexpr (std::is_same_v<T, float>) {
    return detail::pow_float(base, static_cast<double>(exponent));
  } else if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
    return detail::pow_integer(base, exponent);
  } else {
    return cast<T>(__builtin_pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
}

}  // namespace ortisan::fn
