// Loop nests that generated kernels are written with.
#pragma once

#include <cstdint>

#include "macros.h"
#include "parallel.h"
#include "pieces.h"

namespace ortisan {

constexpr int64_t line_length = 4096;
constexpr int64_t strip_length =
    1024;  // elements that a chain of several loops takes at a time, to stay in the nearest cache
constexpr int64_t task_elements = 16384;

// Calls element(i) for every i in [0, n), n <= strip_length, with the instructions of several vectors interleaved: a function of
// dozens of dependent steps leaves most of the CPU idle when vectors come one after the other. GCC has no word for it, but
// takes as many elements at a time as the smallest type in the loop fills a vector with. Hence the bytes.
template <class F>
ORTISAN_INLINE inline void for_strip(int64_t n, const F& element) {
#if defined(__clang__)
  _Pragma("clang loop vectorize(assume_safety) interleave_count(4)") for (int64_t i = 0; i < n; ++i) element(i);
#else
  if (n == strip_length) {
    alignas(64) uint8_t pace[strip_length];
    asm("" : "=m"(pace));
    ORTISAN_INDEPENDENT
    for (int64_t i = 0; i < strip_length; ++i) {
      element(i);
      pace[i] ^= 1;
    }
    asm volatile("" : : "m"(pace));
    return;
  }
  ORTISAN_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) element(i);
#endif
}

// Cuts a row-major space into lines along its last axis and calls line(at, offset, n): n elements from the index vector
// `at` on, whose first is element `offset` of a contiguous tensor.
template <int R, class F>
void for_lines(Context& c, const int64_t (&extent)[R], const F& line) {
  const int64_t inner = extent[R - 1];
  int64_t outer = 1;
  for (int axis = 0; axis + 1 < R; ++axis) outer *= extent[axis];
  if (inner == 0 || outer == 0) return;
  const int64_t length = inner < line_length ? inner : line_length;
  const int64_t pieces = (inner + length - 1) / length;
  const int64_t lines = outer * pieces;
  const int64_t lines_per_task = task_elements / length > 1 ? task_elements / length : 1;
  c.parallel((lines + lines_per_task - 1) / lines_per_task, [&](int64_t task) {
    const int64_t begin = task * lines_per_task;
    const int64_t end = begin + lines_per_task < lines ? begin + lines_per_task : lines;
    int64_t at[R];
    at[R - 1] = begin % pieces * length;
    int64_t rest = begin / pieces;
    int64_t offset = rest * inner + at[R - 1];
    for (int axis = R - 2; axis >= 0; --axis) {
      at[axis] = rest % extent[axis];
      rest /= extent[axis];
    }
    for (int64_t index = begin; index < end; ++index) {
      const int64_t n = inner - at[R - 1] < length ? inner - at[R - 1] : length;
      line(at, offset, n);
      offset += n;
      at[R - 1] += n;
      for (int axis = R - 1; axis > 0 && at[axis] == extent[axis]; --axis) {
        at[axis] = 0;
        ++at[axis - 1];
      }
    }
  });
}

template <int R>
int64_t element_count(const int64_t (&extent)[R]) {
  int64_t count = 1;
  for (int axis = 0; axis < R; ++axis) count *= extent[axis];
  return count;
}

// Where element `index` of a row-major space lies under these strides.
template <int R>
int64_t offset_of(int64_t index, const int64_t (&extent)[R], const int64_t (&stride)[R]) {
  int64_t offset = 0;
  for (int axis = R - 1; axis >= 0; --axis) {
    offset += index % extent[axis] * stride[axis];
    index /= extent[axis];
  }
  return offset;
}

}  // namespace ortisan
