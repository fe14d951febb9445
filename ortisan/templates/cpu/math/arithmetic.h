// Arithmetic, rounding, comparison, logic and bits on compute types (float, double, integers, bool).
//
// Integer arithmetic wraps, and division by zero gives zero: nothing here traps or is undefined. NaN goes through every
// function that has no reason to drop it.
#pragma once

#include "macros.h"
#include "types.h"

namespace ortisan::fn {

namespace detail {

// The unsigned type in which integers of type T are added and multiplied, wide enough not to be promoted to int.
template <class T>
using wrapping = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;

template <class T>
constexpr bool wraps = is_integer<T>;

}  // namespace detail

// Arithmetic.

template <class T>
ORTISAN_BOTH inline T add(T a, T b) {
  if constexpr (detail::wraps<T>) {
    using U = detail::wrapping<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
ORTISAN_BOTH inline T sub(T a, T b) {
  if constexpr (detail::wraps<T>) {
    using U = detail::wrapping<T>;
    return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
  } else {
    return a - b;
  }
}

template <class T>
ORTISAN_BOTH inline T mul(T a, T b) {
  if constexpr (detail::wraps<T>) {
    using U = detail::wrapping<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}

template <class T>
ORTISAN_BOTH inline T neg(T x) {
  if constexpr (detail::wraps<T>) {
    return sub(T(0), x);
  } else {
    return -x;
  }
}

// The quotient truncated toward zero for integers; 0 when b is 0, and the lowest value over -1 wraps to itself.
template <class T>
ORTISAN_BOTH inline T div(T a, T b) {
  if constexpr (detail::wraps<T>) {
    if (b == T(0)) return T(0);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return neg(a);
    return static_cast<T>(a / b);
  } else {
    return a / b;
  }
}

// The remainder with the sign of the dividend; 0 for integers when b is 0.
template <class T>
ORTISAN_BOTH inline T fmod(T a, T b) {
  if constexpr (detail::wraps<T>) {
    if (b == T(0) || (std::is_signed_v<T> && b == static_cast<T>(-1))) return T(0);
    return static_cast<T>(a % b);
  } else if constexpr (std::is_same_v<T, float>) {
    return __builtin_fmodf(a, b);
  } else {
    return __builtin_fmod(a, b);
  }
}

// The remainder with the sign of the divisor.
template <class T>
ORTISAN_BOTH inline T mod(T a, T b) {
  const T r = fmod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? static_cast<T>(r + b) : r;
}

template <class T>
ORTISAN_BOTH inline T reciprocal(T x) {
  return T(1) / x;
}

template <class T>
ORTISAN_BOTH inline T sqrt(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_sqrtf(x);
  } else {
    return __builtin_sqrt(x);
  }
}

template <class T>
ORTISAN_BOTH inline T rsqrt(T x) {
  return T(1) / sqrt(x);
}

template <class T>
ORTISAN_BOTH inline T abs(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_fabsf(x);
  } else if constexpr (std::is_same_v<T, double>) {
    return __builtin_fabs(x);
  } else {
    return x < T(0) ? neg(x) : x;
  }
}

template <class T>
ORTISAN_BOTH inline T sign(T x) {
  const T result = static_cast<T>((x > T(0) ? 1 : 0) - (x < T(0) ? 1 : 0));
  return x != x ? x : result;
}

template <class T>
ORTISAN_BOTH inline T max(T a, T b) {
  const T larger = a > b ? a : b;
  return a != a ? a : larger;
}

template <class T>
ORTISAN_BOTH inline T min(T a, T b) {
  const T smaller = a < b ? a : b;
  return a != a ? a : smaller;
}

namespace detail {

// A variable, though nobody writes it: what is added to it is no number that GCC knows.
ORTISAN_HIDDEN float negative_zero = -0.0f;

}  // namespace detail

// min(max(x, low), high); NaN stays. With bounds that GCC knows it compares and blends, with others it is two instructions.
template <class T>
ORTISAN_BOTH inline T clamp(T x, T low, T high) {
  if constexpr (std::is_same_v<T, float>) {
    low += detail::negative_zero;
    high += detail::negative_zero;
  }
  const T raised = x < low ? low : x;
  return raised > high ? high : raised;
}

// Rounding; integers are already whole.

template <class T>
ORTISAN_BOTH inline T floor(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_floorf(x);
  if constexpr (std::is_same_v<T, double>) return __builtin_floor(x);
  return x;
}

template <class T>
ORTISAN_BOTH inline T ceil(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_ceilf(x);
  if constexpr (std::is_same_v<T, double>) return __builtin_ceil(x);
  return x;
}

// Halves go to the even neighbour.
template <class T>
ORTISAN_BOTH inline T round(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_rintf(x);
  if constexpr (std::is_same_v<T, double>) return __builtin_rint(x);
  return x;
}

// Comparison and choice.

template <class T>
ORTISAN_BOTH inline bool eq(T a, T b) {
  return a == b;
}

template <class T>
ORTISAN_BOTH inline bool ne(T a, T b) {
  return a != b;
}

template <class T>
ORTISAN_BOTH inline bool gt(T a, T b) {
  return a > b;
}

template <class T>
ORTISAN_BOTH inline bool ge(T a, T b) {
  return a >= b;
}

template <class T>
ORTISAN_BOTH inline bool lt(T a, T b) {
  return a < b;
}

template <class T>
ORTISAN_BOTH inline bool le(T a, T b) {
  return a <= b;
}

template <class T>
ORTISAN_BOTH inline T where(bool condition, T a, T b) {
  return condition ? a : b;
}

template <class T>
ORTISAN_BOTH inline bool isnan(T x) {
  return x != x;
}

template <class T>
ORTISAN_BOTH inline bool isinf(T x, bool detect_negative = true, bool detect_positive = true) {
  const int positive = x == limits<T>::infinity ? 1 : 0;
  const int negative = x == limits<T>::negative_infinity ? 1 : 0;
  return ((positive & int(detect_positive)) | (negative & int(detect_negative))) != 0;
}

// Logic and bits.

ORTISAN_BOTH inline bool logical_and(bool a, bool b) { return (unsigned(a) & unsigned(b)) != 0u; }
ORTISAN_BOTH inline bool logical_or(bool a, bool b) { return (unsigned(a) | unsigned(b)) != 0u; }
ORTISAN_BOTH inline bool logical_xor(bool a, bool b) { return a != b; }
ORTISAN_BOTH inline bool logical_not(bool a) { return !a; }

template <class T>
ORTISAN_BOTH inline T bitwise_and(T a, T b) {
  return static_cast<T>(a & b);
}

template <class T>
ORTISAN_BOTH inline T bitwise_or(T a, T b) {
  return static_cast<T>(a | b);
}

template <class T>
ORTISAN_BOTH inline T bitwise_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}

template <class T>
ORTISAN_BOTH inline T bitwise_not(T a) {
  return static_cast<T>(~a);
}

// Shifting by the width or more gives 0.
template <class T>
ORTISAN_BOTH inline T shift_left(T a, T count) {
  using U = detail::wrapping<T>;
  const bool inside = static_cast<U>(count) < sizeof(T) * 8;
  return inside ? static_cast<T>(static_cast<U>(a) << (inside ? static_cast<U>(count) : U(0))) : T(0);
}

template <class T>
ORTISAN_BOTH inline T shift_right(T a, T count) {
  using U = detail::wrapping<T>;
  const bool inside = static_cast<U>(count) < sizeof(T) * 8;
  return inside ? static_cast<T>(a >> (inside ? static_cast<U>(count) : U(0))) : T(0);
}

}  // namespace ortisan::fn
