// Shape inference of a compiled graph, for ONNX Runtime: output types, known sizes, and symbolic names where sizes are unknown.
#pragma once

#include "array.h"
#include "graph.h"
#include "ort_status.h"

namespace ortisan {

// What is known of a graph's symbols before a run: a value, or the name that the model gives to the dim (owned by the
// context), or neither.
struct InferredSymbols {
  Array<MaybeInt> values;
  Array<const char*> names;
  int32_t count;

  explicit InferredSymbols(int32_t n) : values(n), names(n), count(n) {}
  bool named(int32_t symbol) const { return names[symbol] != nullptr && names[symbol][0] != '\0'; }
};

// Reads the symbols off one input's shape. An input of unknown rank looks like a scalar here: another rank than the expected one
// means that nothing is known of it.
inline void read_inferred_symbols(const ort::Api& api, const TensorSpec& input, const ort::TypeAndShape* info,
                                  const InferredSymbols& found) {
  size_t rank = 0;
  if (!succeeded(api, ort::get_dimensions_count(api, info, &rank)) || rank != static_cast<size_t>(input.rank)) return;
  Array<int64_t> sizes(rank);
  Array<const char*> names(rank);
  if (!sizes || !names || !succeeded(api, ort::get_dimensions(api, info, sizes.items, rank)) ||
      !succeeded(api, ort::get_symbolic_dimensions(api, info, names.items, rank)))
    return;
  for (size_t d = 0; d < rank; ++d) {
    if (input.dims[d].kind != DimSpec::symbol) continue;
    const int32_t symbol = static_cast<int32_t>(input.dims[d].value);
    if (sizes[d] >= 0 && !found.values[symbol].known) found.values[symbol] = MaybeInt(sizes[d]);
    if (!found.named(symbol)) found.names[symbol] = names[d];
  }
}

// Writes a name for an unknown size that is computed from symbols, and gives its length. Equal names must mean equal sizes to
// ONNX Runtime's memory planner, so the name carries everything that the size depends on; the length is 0 when some of that
// has no name.
inline size_t name_expression(const GraphSpec& graph, int64_t expression, const InferredSymbols& found, char* name,
                              size_t size) {
  size_t length = 0;
  const auto add = [&](const char* format, const char* text, int64_t number) {
    const int written = std::snprintf(name == nullptr ? nullptr : name + length, name == nullptr ? 0 : size - length,
                                      format, text, static_cast<long long>(number));
    length += written > 0 ? static_cast<size_t>(written) : 0;
  };
  add("%s.expression%lld", graph.op, expression);
  for (int32_t s = 0; s < found.count; ++s) {
    if (found.values[s].known)
      add("%s%lld", s == 0 ? "(" : ", ", found.values[s].value);
    else if (found.named(s))
      add(s == 0 ? "(%s" : ", %s", found.names[s], 0);
    else
      return 0;
  }
  add("%s", ")", 0);
  return length;
}

// The sizes and names of one output's dims. Names are made in `text`, one after the other.
struct InferredShape {
  Array<int64_t> sizes;
  Array<const char*> names;
  Array<char> text;

  InferredShape(size_t rank, size_t text_size) : sizes(rank), names(rank), text(text_size) {}
};

// Bytes that the names of an output's dims take at most.
inline size_t text_size(const GraphSpec& graph, const TensorSpec& output, const InferredSymbols& found) {
  size_t total = 1;
  for (int32_t d = 0; d < output.rank; ++d)
    if (output.dims[d].kind == DimSpec::expression)
      total += name_expression(graph, output.dims[d].value, found, nullptr, 0) + 1;
  return total;
}

// Fills `shape`; false when a size has neither value nor name.
inline bool infer_dims(const GraphSpec& graph, const TensorSpec& output, const InferredSymbols& found, size_t size,
                       const InferredShape& shape) {
  size_t used = 0;
  for (int32_t d = 0; d < output.rank; ++d) {
    const DimSpec& dim = output.dims[d];
    MaybeInt value;
    const char* name = "";
    if (dim.kind == DimSpec::fixed) {
      value = MaybeInt(dim.value);
    } else if (dim.kind == DimSpec::symbol) {
      value = found.values[dim.value];
      if (!value.known && found.named(static_cast<int32_t>(dim.value))) name = found.names[dim.value];
    } else {
      value = graph.maybe_expression(static_cast<int32_t>(dim.value), found.values.items);
      if (!value.known && name_expression(graph, dim.value, found, nullptr, 0) > 0) {
        name = shape.text.items + used;
        used += name_expression(graph, dim.value, found, shape.text.items + used, size - used) + 1;
      }
    }
    if (value.known ? value.value < 0 : name[0] == '\0') return false;
    shape.sizes[d] = value.known ? value.value : -1;
    shape.names[d] = name;
  }
  return true;
}

// Sets one output's type and shape, or nothing when a size has neither value nor name: ONNX Runtime has no other way to write
// a dim that is merely unknown.
inline void infer_output(const ort::Api& api, const GraphSpec& graph, int32_t index, const InferredSymbols& found,
                         const ort::ShapeInferContext* context) {
  const TensorSpec& output = graph.outputs[index];
  const size_t rank = static_cast<size_t>(output.rank);
  const size_t size = text_size(graph, output, found);
  const InferredShape shape(rank, size);
  if (!shape.sizes || !shape.names || !shape.text || !infer_dims(graph, output, found, size, shape)) return;
  ort::TypeAndShape* info = nullptr;
  if (!succeeded(api, ort::create_type_and_shape(api, &info))) return;
  if (succeeded(api, ort::set_element_type(api, info, output.dtype)) &&
      succeeded(api, ort::set_dimensions(api, info, shape.sizes.items, rank)) &&
      succeeded(api, ort::set_symbolic_dimensions(api, info, shape.names.items, rank)))
    succeeded(api, ort::infer_set_output(api, context, static_cast<size_t>(index), info));
  ort::release_type_and_shape(api, info);
}

// Never fails: ONNX Runtime drops the status of this call unread, and a graph without shapes still runs.
inline void infer_shapes(const ort::Api& api, const GraphSpec& graph, const ort::ShapeInferContext* context) {
  const InferredSymbols found(graph.symbol_count);
  if (!found.values || !found.names) return;
  for (int32_t i = 0; i < graph.input_count; ++i) {
    ort::TypeAndShape* info = nullptr;
    if (succeeded(api, ort::infer_input(api, context, static_cast<size_t>(i), &info)))
      read_inferred_symbols(api, graph.inputs[i], info, found);
  }
  for (int32_t o = 0; o < graph.output_count; ++o) infer_output(api, graph, o, found, context);
}

}  // namespace ortisan
