// What a generated graph hands to its callers (the ONNX Runtime glue, the direct binding): tables, and how it is run, which is
// each target's own affair.
#pragma once

#include <cstddef>
#include <cstdint>

#include "maybe_int.h"

namespace ortisan {

// A dim of an input or output: a fixed number, a symbol (index in the symbol vector), or an expression of symbols.
struct DimSpec {
  enum Kind : uint8_t { fixed, symbol, expression } kind;
  int64_t value;  // the number | the symbol's index | the expression's index
};

struct TensorSpec {
  const char* name;
  int32_t dtype;  // ONNX TensorProto number
  int32_t rank;
  const DimSpec* dims;
};

struct WeightSpec {
  const char* name;
  int32_t dtype;
  int64_t bytes;
  bool looked_up;  // rows are picked out of it: a run reads little of it
};

struct SymbolSpec {
  const char* name;
  int64_t low, high;  // inclusive; low >= 0; high is INT64_MAX when there is no bound
};

// What must hold between dims once the symbols are bound.
struct GuardSpec {
  enum Kind : uint8_t { equal, broadcastable, divisible, at_least } kind;
  DimSpec a, b;
  const char* where;  // names the node that needs it
};

struct Execution;  // defined by the target: execution.h

struct GraphSpec {
  const char* op;  // the custom op's type name
  const TensorSpec* inputs;  // node inputs 0 .. input_count - 1
  int32_t input_count;
  const WeightSpec* weights;  // node inputs from input_count on: initializers, constant for the session
  int32_t weight_count;
  const TensorSpec* outputs;
  int32_t output_count;
  const SymbolSpec* symbols;
  int32_t symbol_count;
  const GuardSpec* guards;
  int32_t guard_count;
  // Of the shapes inside the graph the largest: one of them is at least as large as any other, for whatever symbols.
  const TensorSpec* values;
  int32_t value_count;
  MaybeInt (*expression)(int32_t index, Symbols symbols);
  MaybeInt (*maybe_expression)(int32_t index, const MaybeInt* symbols);
  // Null, or tells which inputs and outputs, pair by pair, may be the same memory: caches that are written in place. Returns
  // how many pairs there are.
  size_t (*shared)(int** inputs, int** outputs);
  const Execution* execution;
};

// Defined by the generated library.cpp.
extern const GraphSpec* const graph_specs[];
extern const int32_t graph_spec_count;
extern const char* const domain_name;

}  // namespace ortisan
