// Storage types of tensors, the types computed in, and the conversions between them.
//
// half and bfloat16 are 16-bit storage; arithmetic on them happens in float. All conversions are free of branches and of
// undefined behaviour, and give the same bits on every machine, so loops over them vectorise and can be compared exactly.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "macros.h"

namespace ortisan {

struct half {
  uint16_t bits;
};

struct bfloat16 {
  uint16_t bits;
};

template <class T>
struct compute_type {
  using type = T;
};
template <>
struct compute_type<half> {
  using type = float;
};
template <>
struct compute_type<bfloat16> {
  using type = float;
};

// The type in which values of storage type T are computed.
template <class T>
using compute_t = typename compute_type<T>::type;

template <class T>
constexpr bool is_small_float = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

// Float-like storage: float, double, half, bfloat16.
template <class T>
constexpr bool is_float = std::is_floating_point_v<T> || is_small_float<T>;

// Integers, without bool.
template <class T>
constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class To, class From>
ORTISAN_BOTH inline To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  return __builtin_bit_cast(To, value);
}

ORTISAN_BOTH inline float to_float(half value) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  const uint32_t magnitude = uint32_t(value.bits & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t special = magnitude + (224u << 23);
  // A subnormal half is its fraction on top of 2^-14: adding the exponent of 2^-14 and subtracting 2^-14 normalises it.
  const uint32_t subnormal =
      bit_cast<uint32_t>(bit_cast<float>(magnitude + (113u << 23)) - bit_cast<float>(113u << 23));
  uint32_t result = exponent == 0u ? subnormal : normal;
  result = exponent == 0x0f800000u ? special : result;
  return bit_cast<float>(result | (uint32_t(value.bits & 0x8000u) << 16));
#endif
}

ORTISAN_BOTH inline half to_half(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return half{rounded};
#else
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t magnitude = bits ^ sign;
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  // Adding 0.5 aligns the fraction of a subnormal half with the low bits of a float and rounds it to nearest even.
  const uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? (0x7e00u | ((magnitude >> 13) & 0x3ffu)) : 0x7c00u;
  uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
  result = magnitude >= (143u << 23) ? special : result;
  return half{static_cast<uint16_t>(result | (sign >> 16))};
#endif
}

ORTISAN_BOTH inline float to_float(bfloat16 value) { return bit_cast<float>(uint32_t(value.bits) << 16); }

ORTISAN_BOTH inline bfloat16 to_bfloat16(float value) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const uint32_t nan = bits | 0x00400000u;
  const uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
  return bfloat16{static_cast<uint16_t>(result >> 16)};
}

// Storage to compute type. A bool is read as the byte it is: GCC 12 vectorises no loop that reads a bool.
template <class T>
ORTISAN_BOTH inline compute_t<T> load(const T& value) {
  if constexpr (is_small_float<T>) {
    return to_float(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return reinterpret_cast<const uint8_t&>(value) != 0;
  } else {
    return value;
  }
}

// Compute type to storage.
template <class T>
ORTISAN_BOTH inline T store(compute_t<T> value) {
  if constexpr (std::is_same_v<T, half>) {
    return to_half(value);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(value);
  } else {
    return value;
  }
}

// Named limits of compute types. Integers have no infinity: reductions use their lowest and highest value instead.
template <class T>
struct limits {
  static constexpr bool has_infinity = std::numeric_limits<T>::has_infinity;
  static constexpr T lowest = std::numeric_limits<T>::lowest();
  static constexpr T highest = std::numeric_limits<T>::max();
  static constexpr T infinity = has_infinity ? std::numeric_limits<T>::infinity() : highest;
  static constexpr T negative_infinity = has_infinity ? static_cast<T>(-std::numeric_limits<T>::infinity()) : lowest;
  static constexpr T quiet_nan = std::numeric_limits<T>::quiet_NaN();  // 0 for integers
};

template <>
struct limits<bool> {
  static constexpr bool has_infinity = false;
  static constexpr bool lowest = false, highest = true, infinity = true, negative_infinity = false, quiet_nan = false;
};

namespace detail {

// Truncates toward zero; out of range or NaN gives the lowest value, as the x86 instruction does.
template <class I, class F>
ORTISAN_BOTH inline I truncate(F value) {
  constexpr F low = static_cast<F>(std::numeric_limits<I>::lowest());
  const bool inside = value >= low && value < -low;
  return static_cast<I>(inside ? value : low);
}

template <class To, class F>
ORTISAN_BOTH inline To float_to_integer(F value) {
  if constexpr (std::is_same_v<To, uint64_t>) {
    constexpr F half_range = static_cast<F>(9223372036854775808.0);
    const bool upper = value >= half_range;
    const uint64_t low_part = static_cast<uint64_t>(truncate<int64_t>(upper ? value - half_range : value));
    return low_part ^ (upper ? uint64_t(1) << 63 : uint64_t(0));
  } else if constexpr (std::is_same_v<To, uint32_t> || std::is_same_v<To, int64_t>) {
    return static_cast<To>(truncate<int64_t>(value));
  } else {
    return static_cast<To>(truncate<int32_t>(value));
  }
}

}  // namespace detail

// Converts between storage types as ONNX Cast does: floats truncate toward zero when they become integers, integers wrap,
// everything but zero is true, narrower floats round to nearest even. Out of range floats become some fixed integer.
template <class To, class From>
ORTISAN_BOTH inline To cast(const From& from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (is_small_float<From>) {
    return cast<To>(to_float(from));
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From(0);
  } else if constexpr (std::is_same_v<To, half>) {
    return to_half(static_cast<float>(from));
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return to_bfloat16(static_cast<float>(from));
  } else if constexpr (is_integer<To> && std::is_floating_point_v<From>) {
    return detail::float_to_integer<To>(from);
  } else if constexpr (std::is_same_v<From, bool>) {
    return static_cast<To>(reinterpret_cast<const uint8_t&>(from));
  } else {
    return static_cast<To>(from);
  }
}

// Casts between int64 and float for numbers that an int32 holds, as most do: AVX2 has no instruction for the others. A loop looks
// whether a number leaves the range (which is not 0 then), and runs again with the whole cast when one does.
namespace fn::common {

template <class To>
inline uint32_t leaves_cast(int64_t x) {
  return static_cast<uint32_t>((static_cast<uint64_t>(x) + 0x80000000u) >> 32);
}
template <class To>
inline To cast(int64_t x) {
  return static_cast<To>(static_cast<int32_t>(x));
}

template <class To>
inline uint32_t leaves_cast(float x) {
  return __builtin_fabsf(x) < 0x1p31f ? 0u : 1u;
}
template <class To>
inline To cast(float x) {
  return static_cast<To>(static_cast<int32_t>(leaves_cast<To>(x) != 0u ? 0.0f : x));
}

}  // namespace fn::common

}  // namespace ortisan
