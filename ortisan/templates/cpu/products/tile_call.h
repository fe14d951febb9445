// What all register tiles share: the width of panels, and what they fetch meanwhile.
#pragma once

#include <cstdint>

#include "pieces.h"
#include "types.h"

namespace ortisan {

// Columns of a packed panel. The same on every machine, because weights are packed when they are compiled.
template <class T>
constexpr int64_t panel_width = std::is_same_v<T, double> ? 8 : 16;

namespace detail {

// What is read after a tile, to be fetched into the cache meanwhile: `fetches` lines per eight steps of k, `stride` bytes apart.
struct Next {
  const char* from = nullptr;
  int64_t stride = 0, fetches = 0;

  // `bytes` bytes over K steps.
  static Next spread(const void* from, int64_t bytes, int64_t K) {
    const int64_t blocks = max_of(1, K / 8), lines = (bytes + 63) / 64;
    const int64_t fetches = lines == 0 ? 0 : (lines <= blocks ? 1 : 4);
    return {static_cast<const char*>(from), fetches == 0 ? 0 : max_of(1, bytes / (blocks * fetches)), fetches};
  }
};

}  // namespace detail
}  // namespace ortisan
