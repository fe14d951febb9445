// Filters that are known at run time only, as convolutions read them.
#pragma once

#include <cstdint>

#include "gemm.h"
#include "pieces.h"

namespace ortisan {

// Panels of each group, from w[groups][filters][depth].
template <class T>
void pack_filters(Context& c, int64_t groups, int64_t filters, int64_t depth, const T* w, T* packed) {
  bmm_pack_b<T>(c, groups, depth, filters, [=](int64_t i) { return w + i * filters * depth; }, 1, depth, packed);
}

// [taps][channels], from w[channels][taps].
template <class T>
void pack_taps(Context& c, int64_t channels, int64_t taps, const T* w, T* packed) {
  parallel_ranges(c, taps, channels, [&](int64_t begin, int64_t end) {
    for (int64_t tap = begin; tap < end; ++tap) {
      for (int64_t k = 0; k < channels; ++k) packed[tap * channels + k] = w[k * taps + tap];
    }
  });
}

}  // namespace ortisan
