// How tensors [batch, head, row, element] lie in memory.
#pragma once

#include <cstdint>

namespace ortisan {

// Strides in elements; the innermost axis is contiguous.
struct HeadStrides {
  int64_t batch, head, row;
};

namespace detail {
constexpr int64_t thin_rows = 8;  // most queries of one key/value head that attention_thin.h takes
}

inline bool is_thin(int64_t queries, int64_t group) { return queries * group <= detail::thin_rows; }

// The first rows of a tensor, where they lie outside of it too.
template <class T>
struct PastRows {
  const T* data = nullptr;
  HeadStrides stride = {};
  int64_t rows = 0;
};

}  // namespace ortisan
