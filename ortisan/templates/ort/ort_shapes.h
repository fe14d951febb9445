// Shape inference of a compiled graph, for ONNX Runtime: output types, known sizes, and symbolic names where sizes are unknown.
#pragma once

#include <string>
#include <vector>

#include "graph.h"
#include "ort_status.h"

namespace ortisan {

// What is known of a graph's symbols before a run: a value, or the name that the model gives to the dim, or nothing.
struct InferredSymbols {
  std::vector<MaybeInt> values;
  std::vector<std::string> names;
};

// Reads the symbols off the inputs' shapes. An input of unknown rank looks like a scalar here: another rank than the expected
// one means that nothing is known of it.
inline InferredSymbols read_inferred_symbols(const ort::Api& api, const GraphSpec& graph, const ort::ShapeInferContext* context) {
  const size_t count = static_cast<size_t>(graph.symbol_count);
  InferredSymbols found{std::vector<MaybeInt>(count), std::vector<std::string>(count)};
  for (int32_t i = 0; i < graph.input_count; ++i) {
    const TensorSpec& input = graph.inputs[i];
    ort::TypeAndShape* info = nullptr;
    size_t rank = 0;
    if (!succeeded(api, ort::infer_input(api, context, static_cast<size_t>(i), &info)) ||
        !succeeded(api, ort::get_dimensions_count(api, info, &rank)) || rank != static_cast<size_t>(input.rank))
      continue;
    std::vector<int64_t> sizes(rank, -1);
    std::vector<const char*> names(rank, nullptr);
    if (!succeeded(api, ort::get_dimensions(api, info, sizes.data(), rank)) ||
        !succeeded(api, ort::get_symbolic_dimensions(api, info, names.data(), rank)))
      continue;
    for (size_t d = 0; d < rank; ++d) {
      if (input.dims[d].kind != DimSpec::symbol) continue;
      const size_t symbol = static_cast<size_t>(input.dims[d].value);
      if (sizes[d] >= 0 && !found.values[symbol].known) found.values[symbol] = MaybeInt(sizes[d]);
      if (names[d] != nullptr && found.names[symbol].empty()) found.names[symbol] = names[d];
    }
  }
  return found;
}

// A name for an unknown size that is computed from symbols. Equal names must mean equal sizes to ONNX Runtime's memory
// planner, so the name carries everything that the size depends on; it is empty when some of that has no name.
inline std::string name_of_expression(const GraphSpec& graph, int64_t expression, const InferredSymbols& found) {
  std::string name = std::string(graph.op) + ".expression" + std::to_string(expression) + "(";
  for (size_t s = 0; s < found.values.size(); ++s) {
    if (!found.values[s].known && found.names[s].empty()) return {};
    name += (s == 0 ? "" : ", ") + (found.values[s].known ? std::to_string(found.values[s].value) : found.names[s]);
  }
  return name + ")";
}

// Sets one output's type and shape, or nothing when a size has neither value nor name: ONNX Runtime has no other way to
// write a dim that is merely unknown.
inline void infer_output(const ort::Api& api, const GraphSpec& graph, int32_t index, const InferredSymbols& found,
                         const ort::ShapeInferContext* context) {
  const TensorSpec& output = graph.outputs[index];
  const size_t rank = static_cast<size_t>(output.rank);
  std::vector<int64_t> sizes(rank, -1);
  std::vector<std::string> names(rank);
  std::vector<const char*> name_texts(rank);
  for (size_t d = 0; d < rank; ++d) {
    const DimSpec& dim = output.dims[d];
    MaybeInt size;
    switch (dim.kind) {
      case DimSpec::fixed: size = MaybeInt(dim.value); break;
      case DimSpec::symbol:
        size = found.values[static_cast<size_t>(dim.value)];
        if (!size.known) names[d] = found.names[static_cast<size_t>(dim.value)];
        break;
      case DimSpec::expression:
        size = graph.maybe_expression(static_cast<int32_t>(dim.value), found.values.data());
        if (!size.known) names[d] = name_of_expression(graph, dim.value, found);
        break;
    }
    if (size.known ? size.value < 0 : names[d].empty()) return;
    if (size.known) sizes[d] = size.value;
    name_texts[d] = names[d].c_str();
  }
  ort::TypeAndShape* info = nullptr;
  if (!succeeded(api, ort::create_type_and_shape(api, &info))) return;
  if (succeeded(api, ort::set_element_type(api, info, output.dtype)) &&
      succeeded(api, ort::set_dimensions(api, info, sizes.data(), rank)) &&
      succeeded(api, ort::set_symbolic_dimensions(api, info, name_texts.data(), rank)))
    succeeded(api, ort::infer_set_output(api, context, static_cast<size_t>(index), info));
  ort::release_type_and_shape(api, info);
}

// Never fails: ONNX Runtime drops the status of this call unread, and a graph without shapes still runs.
inline void infer_shapes(const ort::Api& api, const GraphSpec& graph, const ort::ShapeInferContext* context) {
  const InferredSymbols found = read_inferred_symbols(api, graph, context);
  for (int32_t o = 0; o < graph.output_count; ++o) infer_output(api, graph, o, found, context);
}

}  // namespace ortisan
