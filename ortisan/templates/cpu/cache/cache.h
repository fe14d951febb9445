// Writing new rows into a cache of keys or values.
//
// The cache is [batch, .., row, ..]: `outer` pieces of rows, the batches first, each row `inner` elements. E is an unsigned
// integer of the element's size.
#pragma once

#include <cstdint>

#include "pieces.h"

namespace ortisan {

struct CacheShape {
  int64_t batch, outer;  // outer counts the pieces of all batches
  int64_t past, length, rows;  // rows of the past, of the output, and of the update
  int64_t inner;
};

namespace detail {

template <class E>
inline bool overlap(const E* a, int64_t a_count, const E* b, int64_t b_count) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + static_cast<uint64_t>(b_count) * sizeof(E) &&
         second < first + static_cast<uint64_t>(a_count) * sizeof(E);
}

template <class E>
inline void copy_elements(E* to, const E* from, int64_t count) {
  if (count > 0) __builtin_memcpy(to, from, static_cast<uint64_t>(count) * sizeof(E));
}

// The past at the front of each piece, zeros behind it.
template <class E>
void copy_past(Context& c, const CacheShape& shape, const E* past, E* out) {
  const int64_t have = shape.past * shape.inner, want = shape.length * shape.inner;
  if (have == want) {
    return parallel_ranges(c, shape.outer * want, 1,
                           [&](int64_t begin, int64_t end) { copy_elements(out + begin, past + begin, end - begin); });
  }
  parallel_ranges(c, shape.outer, want, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      copy_elements(out + o * want, past + o * have, have);
      for (int64_t i = have; i < want; ++i) out[o * want + i] = E(0);
    }
  });
}

}  // namespace detail

// Rows start + starts[b] .. of the output become the update's; the others are the past's, or zero behind it. `starts` may
// be null. The update's rows lie at update_of(outer, row). out may be past when their shapes are the same: nothing is copied
// then. Nothing is written when a row lies outside, or when past and output overlap in another way.
template <class E, class I, class Rows>
void cache_write(Context& c, const CacheShape& shape, bool circular, int64_t start, const I* starts, const E* past,
                 const Rows& update_of, E* out, const char* outside, const char* overlapping) {
  if (shape.outer <= 0 || shape.inner <= 0 || shape.length <= 0) {
    if (shape.outer > 0 && shape.rows > 0 && shape.length <= 0) c.fail(outside);
    return;
  }
  const int64_t length = shape.length;
  const auto own_start = [=](int64_t b) { return starts == nullptr ? 0 : static_cast<int64_t>(starts[b]); };
  for (int64_t b = 0; b < shape.batch && !circular; ++b) {
    if (own_start(b) < -start || own_start(b) > length - shape.rows - start) return c.fail(outside);
  }
  const bool in_place = past == out && shape.past == length;
  if (!in_place) {
    const int64_t rows = shape.outer * shape.inner;
    if (detail::overlap(past, rows * shape.past, static_cast<const E*>(out), rows * length)) return c.fail(overlapping);
    detail::copy_past(c, shape, past, out);
  }
  // Of rows that meet in a circular cache the last one stays, so only the last ones are written.
  const int64_t first = circular ? max_of(0, shape.rows - length) : 0, rows = shape.rows - first;
  parallel_ranges(c, shape.outer * rows, shape.inner, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t o = at / rows, i = first + at % rows;
      const int64_t own = own_start(o / (shape.outer / shape.batch));
      const int64_t row = circular ? ((own % length + start % length + i) % length + length) % length : own + start + i;
      detail::copy_elements(out + (o * length + row) * shape.inner, update_of(o, i), shape.inner);
    }
  });
}

}  // namespace ortisan
