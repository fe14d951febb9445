// What the kernels of all targets have in common: a kernel's weights, checked, and one call's inputs, symbols and outputs.
#pragma once

#include "array.h"
#include "element_size.h"
#include "ort_status.h"
#include "sizes.h"

namespace ortisan {

// The kernel of a custom op: one per node and session. It holds nothing that changes after it has been loaded, so that any number
// of threads may compute at once.
struct OrtKernel {
  const ort::Api& api;
  const GraphSpec& graph;
  ort::Allocator* allocator = nullptr;
  Array<const void*> weights;

  OrtKernel(const ort::Api& a, const GraphSpec& g) : api(a), graph(g), weights(g.weight_count) {}
  OrtKernel(const OrtKernel&) = delete;
  OrtKernel& operator=(const OrtKernel&) = delete;
  ~OrtKernel() {
    if (allocator != nullptr) ort::release_allocator(api, allocator);
  }

  ort::Status* load(const ort::KernelInfo* info);
  ort::Status* load_weight(const ort::KernelInfo* info, int32_t index);
};

// Owns the type and shape of a value.
struct ValueInfo {
  const ort::Api& api;
  ort::TypeAndShape* info = nullptr;
  int32_t dtype = 0;
  size_t rank = 0;

  explicit ValueInfo(const ort::Api& a) : api(a) {}
  ValueInfo(const ValueInfo&) = delete;
  ValueInfo& operator=(const ValueInfo&) = delete;
  ~ValueInfo() {
    if (info != nullptr) ort::release_type_and_shape(api, info);
  }
  ort::Status* read(const ort::Value* value) {
    if (auto* status = ort::get_type_and_shape(api, value, &info)) return status;
    if (auto* status = ort::get_element_type(api, info, &dtype)) return status;
    return ort::get_dimensions_count(api, info, &rank);
  }
};

inline ort::Status* OrtKernel::load_weight(const ort::KernelInfo* info, int32_t index) {
  const WeightSpec& weight = graph.weights[index];
  int constant = 0;
  const ort::Value* value = nullptr;
  if (auto* status =
          ort::info_constant_input(api, info, static_cast<size_t>(graph.input_count + index), &constant, &value))
    return status;
  if (constant == 0 || value == nullptr)
    return refuse(api, ort::invalid_argument,
                  "%s: weight '%s' must be an initializer of the model that is not a graph input", Name(graph.op).text,
                  Name(weight.name).text);
  ValueInfo actual(api);
  if (auto* status = actual.read(value)) return status;
  size_t count = 0;
  if (auto* status = ort::get_element_count(api, actual.info, &count)) return status;
  const int64_t bytes = (MaybeInt(static_cast<int64_t>(count)) * element_size(actual.dtype)).value;
  if (actual.dtype != weight.dtype || bytes != weight.bytes)
    return refuse(api, ort::invalid_argument,
                  "%s: weight '%s' is %" PRId64 " bytes of element type %d, but the library was built for %" PRId64
                  " bytes of type %d; the model and the library don't belong together",
                  Name(graph.op).text, Name(weight.name).text, bytes, actual.dtype, weight.bytes, weight.dtype);
  void* data = nullptr;
  auto* status = ort::get_tensor_mutable_data(api, const_cast<ort::Value*>(value), &data);
  weights[index] = data;
  return status;
}

inline ort::Status* OrtKernel::load(const ort::KernelInfo* info) {
  if (!weights) return out_of_memory(api, graph.op);
  for (int32_t w = 0; w < graph.weight_count; ++w)
    if (auto* status = load_weight(info, w)) return status;
  return ort::info_allocator(api, info, ort::default_memory, &allocator);
}

inline size_t total_rank(const TensorSpec* tensors, int32_t count) {
  size_t total = 0;
  for (int32_t t = 0; t < count; ++t) total += static_cast<size_t>(tensors[t].rank);
  return total;
}

// What one call is made of: the inputs' shapes and data, the symbols, the outputs' sizes and data. The sizes of all inputs lie side
// by side in `dims`, those of all outputs in `sizes`.
struct Call {
  const ort::Api& api;
  const GraphSpec& graph;
  Array<int64_t> dims, symbols, sizes;
  Array<InputShape> shapes;
  Array<const void*> inputs;
  Array<void*> outputs;
  bool work = false;  // whether an output has elements

  explicit Call(const OrtKernel& k)
      : api(k.api), graph(k.graph), dims(total_rank(graph.inputs, graph.input_count)), symbols(graph.symbol_count),
        sizes(total_rank(graph.outputs, graph.output_count)), shapes(graph.input_count), inputs(graph.input_count),
        outputs(graph.output_count) {}

  explicit operator bool() const { return dims && symbols && sizes && shapes && inputs && outputs; }
  ort::Status* read_inputs(const ort::KernelContext* context);
  ort::Status* read_input(const ort::KernelContext* context, int32_t index, int64_t* input_dims);
  ort::Status* bind();
  ort::Status* make_outputs(ort::KernelContext* context);
  ort::Status* check_sharing() const;
  ort::Status* prepare(ort::KernelContext* context);
};

inline ort::Status* Call::read_input(const ort::KernelContext* context, int32_t index, int64_t* input_dims) {
  const TensorSpec& input = graph.inputs[index];
  const ort::Value* value = nullptr;
  if (auto* status = ort::context_input(api, context, static_cast<size_t>(index), &value)) return status;
  if (value == nullptr)
    return refuse(api, ort::invalid_argument, "%s: input '%s' is missing", Name(graph.op).text, Name(input.name).text);
  ValueInfo actual(api);
  if (auto* status = actual.read(value)) return status;
  if (actual.dtype != input.dtype)
    return refuse(api, ort::invalid_argument, "%s: input '%s' has element type %d, expected %d", Name(graph.op).text,
                  Name(input.name).text, actual.dtype, input.dtype);
  shapes[index] = {input_dims, static_cast<int32_t>(actual.rank)};
  if (actual.rank == static_cast<size_t>(input.rank))
    if (auto* status = ort::get_dimensions(api, actual.info, input_dims, actual.rank)) return status;
  void* data = nullptr;
  auto* status = ort::get_tensor_mutable_data(api, const_cast<ort::Value*>(value), &data);
  inputs[index] = data;
  return status;
}

inline ort::Status* Call::read_inputs(const ort::KernelContext* context) {
  int64_t* next = dims.items;
  for (int32_t i = 0; i < graph.input_count; next += graph.inputs[i].rank, ++i)
    if (auto* status = read_input(context, i, next)) return status;
  return nullptr;
}

inline ort::Status* Call::bind() {
  char sentence[sentence_size];
  if (bind_symbols(graph, shapes.items, symbols.items, sentence, sizeof sentence)) {
    work = has_work(graph, symbols.items);
    if (!work || check_sizes(graph, symbols.items, sentence, sizeof sentence)) return nullptr;
  }
  return ort::create_status(api, ort::invalid_argument, sentence);
}

inline ort::Status* Call::make_outputs(ort::KernelContext* context) {
  int64_t* next = sizes.items;
  for (int32_t o = 0; o < graph.output_count; next += graph.outputs[o].rank, ++o) {
    const TensorSpec& output = graph.outputs[o];
    const size_t rank = static_cast<size_t>(output.rank);
    for (size_t d = 0; d < rank; ++d) next[d] = dim_value(graph, output.dims[d], symbols.items);
    ort::Value* value = nullptr;
    if (auto* status = ort::context_output(api, context, static_cast<size_t>(o), next, rank, &value)) return status;
    if (value == nullptr)
      return refuse(api, ort::invalid_argument,
                    "%s: output '%s' is not connected; each output of the node needs a name", Name(graph.op).text,
                    Name(output.name).text);
    if (auto* status = ort::get_tensor_mutable_data(api, value, &outputs[o])) return status;
  }
  return nullptr;
}

// The caller may bind one memory as input and output. Other inputs than the caches that the graph writes in place are still read
// when outputs are written. ONNX Runtime gives a tensor without elements the address of the next one.
inline ort::Status* Call::check_sharing() const {
  int *shared_inputs = nullptr, *shared_outputs = nullptr;
  const size_t count = graph.shared == nullptr ? 0 : graph.shared(&shared_inputs, &shared_outputs);
  for (int32_t o = 0; o < graph.output_count; ++o) {
    for (int32_t i = 0; i < graph.input_count; ++i) {
      if (outputs[o] != inputs[i] || outputs[o] == nullptr) continue;
      if (!has_elements(graph, graph.inputs[i], symbols.items) || !has_elements(graph, graph.outputs[o], symbols.items))
        continue;
      bool allowed = false;
      for (size_t s = 0; s < count; ++s) allowed = allowed || (shared_inputs[s] == i && shared_outputs[s] == o);
      if (!allowed)
        return refuse(api, ort::invalid_argument,
                      "%s: output '%s' is bound to the memory of input '%s'; give it memory of its own",
                      Name(graph.op).text, Name(graph.outputs[o].name).text, Name(graph.inputs[i].name).text);
    }
  }
  return nullptr;
}

// Everything up to the point where the target's own code runs.
inline ort::Status* Call::prepare(ort::KernelContext* context) {
  if (!*this) return out_of_memory(api, graph.op);
  if (auto* status = read_inputs(context)) return status;
  if (auto* status = bind()) return status;
  if (auto* status = make_outputs(context)) return status;
  return check_sharing();
}

}  // namespace ortisan
