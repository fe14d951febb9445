// How kernels cut their work: pieces whose number depends on the problem only, so results do not depend on the threads.
#pragma once

#include <cstdint>

#include "macros.h"
#include "parallel.h"

namespace ortisan {

constexpr int64_t max_rank = 16;

constexpr int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t ceil_quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements of cheap work below which a second thread does not pay.
constexpr int64_t piece_elements = 16384;

// Calls f(begin, end) over [0, count) in pieces of about `piece_elements` when one item is `item_elements` of work.
template <class F>
inline void parallel_ranges(Context& c, int64_t count, int64_t item_elements, const F& f) {
  if (count <= 0) return;
  const int64_t items = max_of(1, piece_elements / max_of(1, item_elements));
  const int64_t pieces = min_of(ceil_quotient(count, items), 256);
  const int64_t share = count / pieces;
  const int64_t longer = count % pieces;
  c.parallel(pieces, [&](int64_t i) {
    const int64_t begin = i * share + min_of(i, longer);
    f(begin, begin + share + (i < longer ? 1 : 0));
  });
}

}  // namespace ortisan
