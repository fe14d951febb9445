// How a graph runs on a CPU.
#pragma once

#include "graph.h"
#include "parallel.h"

namespace ortisan {

struct Execution {
  int64_t (*scratch_bytes)(const int64_t* symbols);  // negative when int64_t can't hold it
  // Only for symbols that bind_symbols and check_sizes accept. Null, or the failure's message (static storage). A pointer is null only where a tensor has no elements; scratch is
  // 64-byte aligned.
  const char* (*run)(const int64_t* symbols, const void* const* inputs, const void* const* weights,
                     void* const* outputs, char* scratch, Parallel parallel);
  bool thin;  // most bytes of the packed weights are read by products of few rows
};

}  // namespace ortisan
