// Triangles of matrices. E is an unsigned integer of the element's size.
#pragma once

#include <cstdint>

#include "pieces.h"

namespace ortisan {

// The part of each matrix on and above (upper), or on and below, its k-th diagonal; zeros elsewhere.
template <class E>
void trilu(Context& c, int64_t batch, int64_t rows, int64_t columns, int64_t k, bool upper, const E* in, E* out) {
  parallel_ranges(c, batch * rows, columns, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t row = at % rows;
      // The first column on or above the diagonal k. Written so that no k overflows.
      const int64_t beyond = max_of(-rows, min_of(columns, k));
      const int64_t split = max_of(0, min_of(columns, row + beyond + (upper ? 0 : 1)));
      const E* from = in + at * columns;
      E* to = out + at * columns;
      for (int64_t j = 0; j < split; ++j) to[j] = upper ? E(0) : from[j];
      for (int64_t j = split; j < columns; ++j) to[j] = upper ? from[j] : E(0);
    }
  });
}

}  // namespace ortisan
