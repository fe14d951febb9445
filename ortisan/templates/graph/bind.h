// Reads a call's symbols off its input shapes and checks every shape rule of the graph: table-driven, one copy for all graphs.
#pragma once

#include <cinttypes>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "graph.h"

namespace ortisan {

struct InputShape {
  const int64_t* dims;
  int32_t rank;
};

// Unknown where int64_t can't hold it.
inline MaybeInt maybe_dim_value(const GraphSpec& graph, const DimSpec& dim, const int64_t* symbols) {
  switch (dim.kind) {
    case DimSpec::fixed: return dim.value;
    case DimSpec::symbol: return symbols[dim.value];
    default: return graph.expression(static_cast<int32_t>(dim.value), Symbols{symbols});
  }
}

// A dim of an input or output, of a call whose symbols are bound.
inline int64_t dim_value(const GraphSpec& graph, const DimSpec& dim, const int64_t* symbols) {
  return maybe_dim_value(graph, dim, symbols).value;
}

// A name from the model, cut to a length that leaves room for the rest of a sentence, never inside a UTF-8 character.
struct Name {
  char text[100];
  explicit Name(const char* full) {
    size_t length = std::strlen(full);
    if (length >= sizeof text) {
      length = sizeof text - 4;
      while (length > 0 && (static_cast<unsigned char>(full[length]) & 0xC0) == 0x80) --length;
      std::memcpy(text, full, length);
      std::memcpy(text + length, "...", 4);
    } else {
      std::memcpy(text, full, length + 1);
    }
  }
};

namespace binding {

struct Sentence {
  const GraphSpec& graph;
  char* text;
  size_t size;

  // Writes "<op>: <sentence>" and gives false, so that a check can return it.
#if defined(__GNUC__)
  __attribute__((format(printf, 2, 3)))
#endif
  bool say(const char* format, ...) const {
    const int start = std::snprintf(text, size, "%s: ", Name(graph.op).text);
    if (start < 0 || static_cast<size_t>(start) >= size) return false;
    va_list values;
    va_start(values, format);
    std::vsnprintf(text + start, size - static_cast<size_t>(start), format, values);
    va_end(values);
    return false;
  }
};

// Gives each symbol the size of the first input dim that carries it, and checks ranks and fixed dims.
inline bool read_symbols(const Sentence& error, const InputShape* shapes, int64_t* symbols) {
  const GraphSpec& graph = error.graph;
  for (int32_t s = 0; s < graph.symbol_count; ++s) symbols[s] = -1;
  for (int32_t i = 0; i < graph.input_count; ++i) {
    const TensorSpec& input = graph.inputs[i];
    if (shapes[i].rank != input.rank)
      return error.say("input '%s' has %d dims, expected %d", Name(input.name).text, shapes[i].rank, input.rank);
    for (int32_t d = 0; d < input.rank; ++d) {
      const DimSpec& dim = input.dims[d];
      const int64_t size = shapes[i].dims[d];
      if (dim.kind == DimSpec::fixed && size != dim.value)
        return error.say("dim %d of input '%s' is %" PRId64 ", expected %" PRId64, d, Name(input.name).text, size,
                         dim.value);
      if (dim.kind == DimSpec::symbol && symbols[dim.value] < 0) symbols[dim.value] = size;
    }
  }
  for (int32_t s = 0; s < graph.symbol_count; ++s)
    if (symbols[s] < 0) return error.say("no input tells the size of '%s'", Name(graph.symbols[s].name).text);
  return true;
}

struct Source {
  const char* input;
  int32_t dim;
};

// The first input that has this symbol as a dim.
inline Source source_of(const GraphSpec& graph, int64_t symbol) {
  for (int32_t i = 0; i < graph.input_count; ++i)
    for (int32_t d = 0; d < graph.inputs[i].rank; ++d)
      if (graph.inputs[i].dims[d].kind == DimSpec::symbol && graph.inputs[i].dims[d].value == symbol)
        return {graph.inputs[i].name, d};
  return {"", 0};
}

// Every further use of a symbol, and every expression, agrees with what was read.
inline bool check_inputs(const Sentence& error, const InputShape* shapes, const int64_t* symbols) {
  const GraphSpec& graph = error.graph;
  for (int32_t i = 0; i < graph.input_count; ++i) {
    const TensorSpec& input = graph.inputs[i];
    for (int32_t d = 0; d < input.rank; ++d) {
      const DimSpec& dim = input.dims[d];
      const int64_t size = shapes[i].dims[d];
      const MaybeInt expected = maybe_dim_value(graph, dim, symbols);
      if (expected.is(size)) continue;
      if (!expected.known)
        return error.say("dim %d of input '%s' is %" PRId64 ", expected more than int64 can hold", d,
                         Name(input.name).text, size);
      const int64_t wanted = expected.value;
      if (dim.kind == DimSpec::symbol)
        return error.say("dim %d of input '%s' is %" PRId64 " but '%s' is %" PRId64 " in input '%s'", d,
                         Name(input.name).text, size, Name(graph.symbols[dim.value].name).text, wanted,
                         Name(source_of(graph, dim.value).input).text);
      return error.say("dim %d of input '%s' is %" PRId64 ", expected %" PRId64 " for the other inputs' sizes", d,
                       Name(input.name).text, size, wanted);
    }
  }
  return true;
}

inline bool check_bounds(const Sentence& error, const int64_t* symbols) {
  const GraphSpec& graph = error.graph;
  for (int32_t s = 0; s < graph.symbol_count; ++s) {
    const SymbolSpec& symbol = graph.symbols[s];
    if (symbols[s] >= symbol.low && symbols[s] <= symbol.high) continue;
    const Source source = source_of(graph, s);
    if (symbol.high == INT64_MAX)
      return error.say("'%s' (dim %d of input '%s') is %" PRId64 ", below its declared minimum %" PRId64
                       "; rebuild with other dims",
                       Name(symbol.name).text, source.dim, Name(source.input).text, symbols[s], symbol.low);
    return error.say("'%s' (dim %d of input '%s') is %" PRId64 ", outside its declared range %" PRId64 "..%" PRId64
                     "; rebuild with other dims",
                     Name(symbol.name).text, source.dim, Name(source.input).text, symbols[s], symbol.low, symbol.high);
  }
  return true;
}

inline bool check_guards(const Sentence& error, const int64_t* symbols) {
  const GraphSpec& graph = error.graph;
  for (int32_t g = 0; g < graph.guard_count; ++g) {
    const GuardSpec& guard = graph.guards[g];
    const MaybeInt maybe_a = maybe_dim_value(graph, guard.a, symbols);
    const MaybeInt maybe_b = maybe_dim_value(graph, guard.b, symbols);
    if (!MaybeInt::both(maybe_a, maybe_b))
      return error.say("%s has sizes that int64 can't hold; give smaller inputs", Name(guard.where).text);
    const int64_t a = maybe_a.value, b = maybe_b.value;
    const char* rule = nullptr;
    switch (guard.kind) {
      case GuardSpec::equal: rule = a == b ? nullptr : "%s needs equal sizes, got %" PRId64 " and %" PRId64; break;
      case GuardSpec::broadcastable:
        rule = a == b || a == 1 || b == 1 ? nullptr : "%s can't broadcast size %" PRId64 " with size %" PRId64;
        break;
      case GuardSpec::divisible:
        rule = b != 0 && (b == -1 || a % b == 0) ? nullptr : "%s needs size %" PRId64 " to be a multiple of %" PRId64;
        break;
      case GuardSpec::at_least: rule = a >= b ? nullptr : "%s has size %" PRId64 ", but needs at least %" PRId64; break;
    }
    if (rule != nullptr) return error.say(rule, Name(guard.where).text, a, b);
  }
  return true;
}

inline bool check_outputs(const Sentence& error, const int64_t* symbols) {
  const GraphSpec& graph = error.graph;
  for (int32_t o = 0; o < graph.output_count; ++o) {
    const TensorSpec& output = graph.outputs[o];
    for (int32_t d = 0; d < output.rank; ++d) {
      const MaybeInt size = maybe_dim_value(graph, output.dims[d], symbols);
      if (!size.known)
        return error.say("dim %d of output '%s' would be more than int64 can hold for these inputs", d,
                         Name(output.name).text);
      if (size.value < 0)
        return error.say("dim %d of output '%s' would be %" PRId64 " for these inputs", d, Name(output.name).text,
                         size.value);
    }
  }
  return true;
}

}  // namespace binding

// Fills symbols[0 .. symbol_count) from the shapes of the graph's inputs and checks ranks, fixed dims, equal symbols, bounds
// and guards. Returns false with one sentence in `message` when something does not fit.
inline bool bind_symbols(const GraphSpec& graph, const InputShape* shapes, int64_t* symbols, char* message,
                         size_t message_size) {
  const binding::Sentence error{graph, message, message_size};
  return binding::read_symbols(error, shapes, symbols) && binding::check_inputs(error, shapes, symbols) &&
         binding::check_bounds(error, symbols) && binding::check_guards(error, symbols) &&
         binding::check_outputs(error, symbols);
}

}  // namespace ortisan
