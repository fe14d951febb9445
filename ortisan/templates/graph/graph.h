// What a generated graph hands to its callers (the ONNX Runtime glue, the direct binding): tables, and how it is run, which is
// each target's own affair.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ortisan {

// An integer that may be unknown, for shape inference where only some symbols have a value.
struct MaybeInt {
  int64_t value = 0;
  bool known = false;

  constexpr MaybeInt() = default;
  constexpr MaybeInt(int64_t v) : value(v), known(true) {}

  friend constexpr MaybeInt operator+(MaybeInt a, MaybeInt b) {
    return both(a, b) ? MaybeInt(a.value + b.value) : MaybeInt();
  }
  friend constexpr MaybeInt operator-(MaybeInt a, MaybeInt b) {
    return both(a, b) ? MaybeInt(a.value - b.value) : MaybeInt();
  }
  friend constexpr MaybeInt operator*(MaybeInt a, MaybeInt b) {
    return both(a, b) ? MaybeInt(a.value * b.value) : MaybeInt();
  }
  static constexpr bool both(MaybeInt a, MaybeInt b) { return a.known && b.known; }
};

// The vocabulary of dim expressions, once for known and once for maybe-known integers. x / 0 is 0 and unknown.
constexpr int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) == (b < 0)) ? q + 1 : q;
}
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
constexpr int64_t max_dim(int64_t a, int64_t b) { return a < b ? b : a; }
constexpr int64_t min_dim(int64_t a, int64_t b) { return b < a ? b : a; }
constexpr int64_t broadcast_dim(int64_t a, int64_t b) { return a == 1 ? b : a; }

constexpr MaybeInt floor_div(MaybeInt a, MaybeInt b) {
  return MaybeInt::both(a, b) && b.value != 0 ? MaybeInt(floor_div(a.value, b.value)) : MaybeInt();
}
constexpr MaybeInt ceil_div(MaybeInt a, MaybeInt b) {
  return MaybeInt::both(a, b) && b.value != 0 ? MaybeInt(ceil_div(a.value, b.value)) : MaybeInt();
}
constexpr MaybeInt max_dim(MaybeInt a, MaybeInt b) {
  return MaybeInt::both(a, b) ? MaybeInt(max_dim(a.value, b.value)) : MaybeInt();
}
constexpr MaybeInt min_dim(MaybeInt a, MaybeInt b) {
  return MaybeInt::both(a, b) ? MaybeInt(min_dim(a.value, b.value)) : MaybeInt();
}
// One side known and not 1 settles it: the other side is equal to it, or 1.
constexpr MaybeInt broadcast_dim(MaybeInt a, MaybeInt b) {
  if (a.known) return a.value == 1 ? b : a;
  return b.known && b.value != 1 ? b : MaybeInt();
}

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
  int64_t (*expression)(int32_t index, const int64_t* symbols);
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
