// Tensors made of numbers: fills and ranges.
#pragma once

#include <cstdint>

#include "pieces.h"

namespace ortisan {

template <class E>
void fill(Context& c, int64_t count, E value, E* dst) {
  parallel_ranges(c, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dst[i] = value;
  });
}

// start, start + step, start + 2 step, ...; integers wrap.
template <class T>
void arange(Context& c, int64_t count, T start, T step, T* dst) {
  parallel_ranges(c, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (static_cast<T>(0.5) == T(0)) {
        dst[i] = static_cast<T>(static_cast<uint64_t>(start) + static_cast<uint64_t>(i) * static_cast<uint64_t>(step));
      } else {
        dst[i] = start + static_cast<T>(i) * step;
      }
    }
  });
}

}  // namespace ortisan
