// How a graph runs on a GPU: an AITemplate model, and its names of the graph's tensors.
#pragma once

#include "ait_model.h"
#include "graph.h"

namespace ortisan {

struct Execution {
  const AitModel* model;
  const char* const* inputs;   // one per input of the graph; null for one that AITemplate does not need
  const char* const* weights;  // one per weight
  const char* const* outputs;  // one per output
  const int32_t* symbols;      // the model's symbols, as places among the graph's
  int32_t symbol_count;
  const char* const*
      checked;  // the nodes that are given indices, in the order of the numbers that they are reported by
};

}  // namespace ortisan
