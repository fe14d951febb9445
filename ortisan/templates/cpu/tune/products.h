// What the module that times products knows of the kernels, which are built for the CPU and not included by it.
#pragma once

#include <cstdint>

#include "blocking.h"
#include "parallel.h"

namespace ortisan {

// A matrix product of one element type.
struct TimedProduct {
  int64_t element_bytes;
  int64_t panel_width;
  int64_t (*packed_bytes)(int64_t K, int64_t N);
  void (*fill)(void* data, int64_t count);  // with ones
  // out[M, N] = a[M, K] * packed
  void (*run)(Parallel parallel, int64_t M, int64_t N, int64_t K, const void* a, const void* packed, void* out,
              const Blocking& blocking);
  Launch (*launch)(int64_t M, int64_t N, int64_t K, const Blocking& blocking);
};

// The product of a type, named as in numpy; null for a type that is not timed.
const TimedProduct* find_product(const char* type);

}  // namespace ortisan
