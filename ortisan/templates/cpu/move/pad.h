// Padding that repeats the tensor's own values. (Constant padding is a fill and a copy_nd.)
#pragma once

#include <cstdint>

#include "move.h"

namespace ortisan {

enum class PadMode : uint8_t { edge, reflect, wrap };

namespace detail {

// The index in [0, extent) that position `at` (any integer) of a padded axis repeats.
inline int64_t padded_index(int64_t at, int64_t extent, PadMode mode) {
  if (at >= 0 && at < extent) return at;
  if (mode == PadMode::edge || extent == 1) return at < 0 ? 0 : extent - 1;
  const int64_t period = mode == PadMode::wrap ? extent : 2 * (extent - 1);
  int64_t r = at % period;
  if (r < 0) r += period;
  return r < extent ? r : period - r;
}

}  // namespace detail

// dst[o] = src[index(o - before)] per axis; both dense, row-major. `before` may be negative (a crop). A src without elements
// has nothing to repeat: dst becomes zero.
template <class E>
void pad_nd(Context& c, int64_t rank, const int64_t* src_extent, const int64_t* before, const int64_t* dst_extent,
            PadMode mode, const E* src, E* dst) {
  int64_t rows = 1;
  int64_t src_count = 1;
  for (int64_t i = 0; i < rank; ++i) {
    if (i < rank - 1) rows *= dst_extent[i];
    src_count *= src_extent[i];
  }
  const int64_t width = rank > 0 ? dst_extent[rank - 1] : 1;
  if (src_count == 0) return fill(c, rows * width, E(0), dst);
  if (rank == 0) {
    *dst = *src;
    return;
  }
  const int64_t src_width = src_extent[rank - 1];
  const int64_t left = before[rank - 1];
  const int64_t copy_begin = min_of(max_of(left, 0), width);
  const int64_t copy_end = max_of(copy_begin, min_of(left + src_width, width));
  parallel_ranges(c, rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row;
      int64_t offset = 0;
      int64_t stride = src_width;
      for (int64_t i = rank - 2; i >= 0; --i) {
        offset += stride * detail::padded_index(rest % dst_extent[i] - before[i], src_extent[i], mode);
        rest /= dst_extent[i];
        stride *= src_extent[i];
      }
      const E* from = src + offset;
      E* to = dst + row * width;
      for (int64_t i = 0; i < copy_begin; ++i) to[i] = from[detail::padded_index(i - left, src_width, mode)];
      detail::copy_run(copy_end - copy_begin, from + (copy_begin - left), 1, to + copy_begin, 1);
      for (int64_t i = copy_end; i < width; ++i) to[i] = from[detail::padded_index(i - left, src_width, mode)];
    }
  });
}

}  // namespace ortisan
