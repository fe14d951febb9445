// Vectors of the compute type: loads from any float storage, and sums across their lanes.
#pragma once

#include <cstdint>
#include <utility>

#include "types.h"
#include "vectors.h"

namespace ortisan::detail {

template <class C>
constexpr int64_t lane_count = vector_bytes / int64_t(sizeof(C));

template <class C>
struct Lanes {
  typedef C type __attribute__((vector_size(vector_bytes)));
};
template <class C>
using lanes_t = typename Lanes<C>::type;

template <class V, class T>
inline V read_unaligned(const T* x) {
  V result;
  __builtin_memcpy(&result, x, sizeof(V));
  return result;
}

template <class To, class V>
inline To same_bits(V value) {
  static_assert(sizeof(To) == sizeof(V));
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

// lane_count values as vectors of the compute type.
template <class T>
inline lanes_t<compute_t<T>> load_lanes(const T* x) {
  return read_unaligned<lanes_t<T>>(x);
}

typedef uint16_t short_lanes __attribute__((vector_size(vector_bytes / 2), aligned(2), may_alias));
typedef uint32_t word_lanes __attribute__((vector_size(vector_bytes)));

inline word_lanes widen(const uint16_t* x) {
#if defined(__AVX2__)
  // GCC 12 converts the halves of the vector apart.
  word_lanes result;
  asm("vpmovzxwd %1, %0" : "=v"(result) : "m"(*reinterpret_cast<const short_lanes*>(x)));
  return result;
#else
  return __builtin_convertvector(read_unaligned<short_lanes>(x), word_lanes);
#endif
}

template <>
inline lanes_t<float> load_lanes(const bfloat16* x) {
  return same_bits<lanes_t<float>>(widen(&x->bits) << 16);
}

template <>
inline lanes_t<float> load_lanes(const half* x) {
#if defined(__F16C__)
  lanes_t<float> result;
  asm("vcvtph2ps %1, %0" : "=v"(result) : "m"(*reinterpret_cast<const short_lanes*>(x)));
  return result;
#elif defined(__aarch64__)
  lanes_t<float> result;
  asm("fcvtl %0.4s, %1.4h" : "=w"(result) : "w"(read_unaligned<short_lanes>(x)));
  return result;
#else
  // to_float of types.h, on vectors.
  const word_lanes bits = widen(&x->bits);
  const word_lanes magnitude = (bits & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
  const word_lanes shifted = same_bits<word_lanes>(same_bits<lanes_t<float>>(magnitude + (113u << 23)) - 0x1p-14f);
  const word_lanes normal = magnitude + (112u << 23), special = magnitude + (224u << 23);
  const word_lanes tiny = same_bits<word_lanes>(exponent == 0u), wild = same_bits<word_lanes>(exponent == 0x0f800000u);
  const word_lanes finite = (shifted & tiny) | (normal & ~tiny);
  return same_bits<lanes_t<float>>((special & wild) | (finite & ~wild) | ((bits & 0x8000u) << 16));
#endif
}

// The first `count` < lane_count values, zeros behind them.
template <class T>
inline lanes_t<compute_t<T>> load_some_lanes(const T* x, int64_t count) {
  lanes_t<compute_t<T>> result{};
  for (int64_t i = 0; i < count; ++i) result[i] = load(x[i]);
  return result;
}

// The numbers of the lanes as a vector, for shuffles.
#if defined(__clang__)
#define ORTISAN_LANES(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ORTISAN_LANES(a, b, ...) __builtin_shuffle(a, b, lane_numbers_t<decltype(a)>{__VA_ARGS__})
#endif

template <class V>
struct LaneNumbers {
  typedef std::conditional_t<sizeof(V{}[0]) == 4, int32_t, int64_t> type __attribute__((vector_size(vector_bytes)));
};
template <class V>
using lane_numbers_t = typename LaneNumbers<std::remove_const_t<V>>::type;

// Sums of neighbours, in each group of four lanes two of a and two of b.
template <class V, int... l>
inline V add_pairs(const V a, const V b, std::integer_sequence<int, l...>) {
  constexpr int count = sizeof...(l);
  return ORTISAN_LANES(a, b, ((l & ~3) + 2 * (l & 1) + ((l & 2) != 0 ? count : 0))...) +
         ORTISAN_LANES(a, b, ((l & ~3) + 2 * (l & 1) + 1 + ((l & 2) != 0 ? count : 0))...);
}

template <int distance, class V, int... l>
inline V add_distant(const V a, std::integer_sequence<int, l...>) {
  return a + ORTISAN_LANES(a, a, (l ^ distance)...);
}

// Lane l becomes the sum of the lanes that are l modulo `distance`, a power of two.
template <int distance, class V>
inline V fold_lanes_above(const V v) {
  constexpr int count = static_cast<int>(sizeof(V) / sizeof(V{}[0]));
  if constexpr (distance < count) {
    return fold_lanes_above<2 * distance>(add_distant<distance>(v, std::make_integer_sequence<int, count>{}));
  } else {
    return v;
  }
}

template <class V>
inline auto sum_lanes(const V v) {
  return fold_lanes_above<1>(v)[0];
}

// out[i] = the sum of v[i]'s lanes (+ out[i] with `more`), for four vectors.
template <class C>
inline void sum_four(const lanes_t<C>* v, C* out, bool more) {
  constexpr int count = lane_count<C>;
  if constexpr (count >= 4) {
    constexpr auto all = std::make_integer_sequence<int, count>{};
    const lanes_t<C> sums = fold_lanes_above<4>(add_pairs(add_pairs(v[0], v[1], all), add_pairs(v[2], v[3], all), all));
    typedef C four __attribute__((vector_size(4 * sizeof(C))));
    four low;
    __builtin_memcpy(&low, &sums, sizeof(low));
    if (more) low += read_unaligned<four>(out);
    __builtin_memcpy(out, &low, sizeof(low));
  } else {
    for (int i = 0; i < 4; ++i) out[i] = sum_lanes(v[i]) + (more ? out[i] : C(0));
  }
}

#undef ORTISAN_LANES

}  // namespace ortisan::detail
