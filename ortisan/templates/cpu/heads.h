// How tensors [batch, head, row, element] lie in memory.
#pragma once

#include <cstdint>

namespace ortisan {

// Strides in elements; the innermost axis is contiguous.
struct HeadStrides {
  int64_t batch, head, row;
};

}  // namespace ortisan
