// Reading elements by index, one-hot vectors and triangles.
//
// Indices are int32 or int64; negative ones count from the end. An index out of range calls c.fail(message) with the caller's
// message and nothing is read for it. E is an unsigned integer of the element's size.
#pragma once

#include <cstdint>

#include "pieces.h"

namespace ortisan {

namespace detail {

// The index in [0, extent), or -1 when there is none.
inline int64_t wrapped_index(int64_t index, int64_t extent) {
  const int64_t positive = index < 0 ? index + extent : index;
  return positive >= 0 && positive < extent ? positive : -1;
}

}  // namespace detail

// out[o, i, k] = data[o, indices[i], k] for data [outer, extent, inner] and `count` indices.
template <class E, class I>
void gather(Context& c, int64_t outer, int64_t extent, int64_t inner, int64_t count, const E* data, const I* indices,
            E* out, const char* message) {
  parallel_ranges(c, outer * count, inner, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t index = detail::wrapped_index(indices[at % count], extent);
      if (index < 0) return c.fail(message);
      const E* from = data + (at / count * extent + index) * inner;
      if (inner == 1) {
        out[at] = *from;
      } else {
        __builtin_memcpy(out + at * inner, from, static_cast<uint64_t>(inner) * sizeof(E));
      }
    }
  });
}

// out[i_0 .. i_r] = data[i_0 .., indices[i_0 .. i_r] at `axis`, ..]; data and indices are dense and have the same rank.
template <class E, class I>
void gather_elements(Context& c, int64_t rank, int64_t axis, const int64_t* data_extent, const int64_t* index_extent,
                     const E* data, const I* indices, E* out, const char* message) {
  int64_t stride[max_rank];
  int64_t count = 1;
  for (int64_t i = rank - 1, s = 1; i >= 0; --i) {
    stride[i] = s;
    s *= data_extent[i];
    count *= index_extent[i];
  }
  parallel_ranges(c, count, 4, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t index = detail::wrapped_index(indices[at], data_extent[axis]);
      if (index < 0) return c.fail(message);
      int64_t offset = index * stride[axis];
      int64_t rest = at;
      for (int64_t i = rank - 1; i >= 0; --i) {
        if (i != axis) offset += rest % index_extent[i] * stride[i];
        rest /= index_extent[i];
      }
      out[at] = data[offset];
    }
  });
}

// For each of `batch` equal parts: out[t, :] = data[indices[t, 0], .., indices[t, depth - 1], :], t < count. `extent` are the
// `depth` indexed dims of a part of data, `inner` the elements below them.
template <class E, class I>
void gather_nd(Context& c, int64_t batch, int64_t count, int64_t depth, const int64_t* extent, int64_t inner,
               const E* data, const I* indices, E* out, const char* message) {
  int64_t part = inner;
  for (int64_t i = 0; i < depth; ++i) part *= extent[i];
  parallel_ranges(c, batch * count, inner + depth, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      int64_t offset = 0;
      for (int64_t i = 0; i < depth; ++i) {
        const int64_t index = detail::wrapped_index(indices[at * depth + i], extent[i]);
        if (index < 0) return c.fail(message);
        offset = offset * extent[i] + index;
      }
      const E* from = data + at / count * part + offset * inner;
      __builtin_memcpy(out + at * inner, from, static_cast<uint64_t>(inner) * sizeof(E));
    }
  });
}

// out[o, d, i] = indices[o, i] == d ? on : off, for depth values of d. Indices out of range give no `on`: that is ONNX's rule.
template <class E, class I>
void one_hot(Context& c, int64_t outer, int64_t depth, int64_t inner, const I* indices, E on, E off, E* out) {
  parallel_ranges(c, outer * depth, inner, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t d = at % depth;
      const I* row = indices + at / depth * inner;
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t index = static_cast<int64_t>(row[i]);
        out[at * inner + i] = (index < 0 ? index + depth : index) == d ? on : off;
      }
    }
  });
}

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
