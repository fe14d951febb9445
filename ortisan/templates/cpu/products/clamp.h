// The epilogue that most products of a network have, made in registers: min(max(sum + bias[col], low), high).
#pragma once

#include <cstdint>
#include <type_traits>

#include "pieces.h"
#include "types.h"

namespace ortisan {

// NaN stays, and infinite bounds are none. Without a bias, the results are others.
template <class T>
struct Clamp {
  const T* bias = nullptr;
  T low = T(0), high = T(0);

  Clamp from(int64_t col) const { return {bias + col, low, high}; }
};

// As an epilogue: see gemm.h. Rows of `out` are N apart.
template <class T>
struct Clamped {
  Clamp<T> clamp;
  T* out;
  int64_t N;

  void operator()(int64_t row, int64_t rows, int64_t col, const T* __restrict sums, int64_t width, int64_t n) const {
    const T* const bias = clamp.bias + col;
    const T low = clamp.low, high = clamp.high;
    for (int64_t i = 0; i < rows; ++i) {
      T* const line = out + (row + i) * N + col;
      ORTISAN_INDEPENDENT
      for (int64_t j = 0; j < n; ++j) {
        const T total = sums[i * width + j] + bias[j], raised = total < low ? low : total;
        line[j] = raised > high ? high : raised;
      }
    }
  }
};

namespace detail {

template <class Epilogue>
constexpr bool is_clamped = false;
template <class T>
constexpr bool is_clamped<Clamped<T>> = true;

}  // namespace detail
}  // namespace ortisan
