// Numbers as bits: float16, bfloat16 and flushed float32.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ortisan::emulator {

template <class To, class From>
inline To as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

constexpr uint32_t kNanBits = 0x7fffffff;  // the NaN of float32 arithmetic

inline float canonical(float x) { return x == x ? x : as<float>(kNanBits); }

inline float flush(float x) {
  const uint32_t bits = as<uint32_t>(x);
  return (bits & 0x7f800000) == 0 ? as<float>(bits & 0x80000000) : x;
}

// 0 for NaN.
inline float saturate(float x) {
  const float low = x > 0 ? x : 0.0f;
  return low < 1 ? low : 1.0f;
}

inline float from_half(uint16_t half) {
  const uint32_t magnitude = uint32_t{half & 0x7fffu} << 13;
  const uint32_t scaled = as<uint32_t>(as<float>(magnitude) * 0x1p112f);
  const uint32_t bits = (half & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : scaled;
  return as<float>(bits | uint32_t{half & 0x8000u} << 16);
}

// To nearest, ties to even.
inline uint16_t to_half(float x) {
  const uint32_t bits = as<uint32_t>(x), magnitude = bits & 0x7fffffff;
  const uint32_t tiny = as<uint32_t>(as<float>(magnitude) + 0.5f) - 0x3f000000;
  const uint32_t normal = (magnitude + 0xc8000fff + (magnitude >> 13 & 1)) >> 13;
  uint32_t half = magnitude < 0x38800000 ? tiny : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  const uint32_t signed_half = half | (bits >> 16 & 0x8000);
  return static_cast<uint16_t>(magnitude > 0x7f800000 ? 0x7fff : signed_half);
}

inline float from_bfloat(uint16_t x) { return as<float>(uint32_t{x} << 16); }

inline uint16_t to_bfloat(float x) {
  const uint32_t bits = as<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

// a + b in double, with the last bit set when it is not exact: rounding that once more to a short type rounds a + b itself.
inline double add_to_odd(double a, double b) {
  const double sum = a + b;
  if (!(std::fabs(sum) <= 0x1p1000)) return sum;
  const double part = sum - a;
  const double error = (a - (sum - part)) + (b - part);
  const uint64_t bits = as<uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  return as<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// The double as float, rounded to odd, so that it may be rounded again to 16 bits.
inline float odd_float(double x) {
  const float near = static_cast<float>(x);
  const uint32_t bits = as<uint32_t>(near);
  if (static_cast<double>(near) == x || near != near || std::isinf(near) || (bits & 1) != 0) return near;
  const bool away = (std::fabs(x) > std::fabs(static_cast<double>(near)));
  return as<float>(away ? bits + 1 : bits - 1);
}

}  // namespace ortisan::emulator
