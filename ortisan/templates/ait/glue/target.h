// The GPU target's part of the glue: kernels hold an AITemplate model whose constants are the session's device copies of the
// weights, whose buffers come from ONNX Runtime's allocator, and whose runs go to the session's CUDA stream.
//
// With ORTISAN_ANY_PROVIDER the ops belong to no provider, which lets them run in a CPU session over a CUDA runtime of host memory.
#pragma once

#include "execution.h"
#include "host_memory.h"
#include "ort_call.h"

namespace ortisan {

#if defined(ORTISAN_ANY_PROVIDER)
constexpr const char* execution_provider = nullptr;
#else
constexpr const char* execution_provider = "CUDAExecutionProvider";
#endif

// The session config entry custom_op.OP.runtimes: how many runs of an op can be computed at once. Each has buffers of its own.
struct Setting {
  uint8_t runtimes;  // 0 when nothing was said
  size_t count() const { return runtimes == 0 ? 2 : runtimes; }
  bool operator!=(const Setting& other) const { return runtimes != other.runtimes; }
};
constexpr const char* setting_key = "runtimes";
constexpr const char* setting_choices = "a number from 1 to 9";
inline bool parse_setting(const char* text, Setting* meaning) {
  if (text[0] < '1' || text[0] > '9' || text[1] != '\0') return false;
  meaning->runtimes = static_cast<uint8_t>(text[0] - '0');
  return true;
}

inline bool is_unusable(char*, size_t) { return false; }

struct Kernel : OrtKernel {
  AitModelState* state = nullptr;

  Kernel(const ort::Api& a, const GraphSpec& g) : OrtKernel(a, g) {}
  ~Kernel() {
    if (state != nullptr) model().destroy(state);
    for (int32_t w = 0; w < graph.weight_count; ++w) host_memory::end(const_cast<void*>(weights[w]));
  }

  const AitModel& model() const { return *graph.execution->model; }
  ort::Status* load(const ort::KernelInfo* info, Setting setting);
  ort::Status* set_constants();
  ort::Status* device(int* id) const;
  ort::Status* check_alignment(const char* kind, const TensorSpec& tensor, const void* data) const;
  ort::Status* check_indices() const;
  ort::Status* compute(ort::KernelContext* context) const;
  ort::Status* say(ort::ErrorCode code, const char* failure) const {
    return refuse(api, code, "%s: %s", Name(graph.op).text, failure);
  }

  static void* allocate(void* self, size_t bytes) {
    const Kernel& kernel = *static_cast<const Kernel*>(self);
    void* block = nullptr;
    if (!succeeded(kernel.api, ort::allocator_alloc(kernel.api, kernel.allocator, bytes, &block))) return nullptr;
    host_memory::begin(block, bytes, false);
    return block;
  }
  static void release(void* self, void* block) {
    const Kernel& kernel = *static_cast<const Kernel*>(self);
    host_memory::end(block);
    succeeded(kernel.api, ort::allocator_free(kernel.api, kernel.allocator, block));
  }
};

// The device that the session's memory is on.
inline ort::Status* Kernel::device(int* id) const {
  const ort::MemoryInfo* memory = nullptr;
  if (auto* status = ort::allocator_info(api, allocator, &memory)) return status;
  return ort::memory_info_id(api, memory, id);
}

inline ort::Status* Kernel::set_constants() {
  const size_t count = static_cast<size_t>(graph.weight_count);
  Array<AitValue> values(count);
  Array<int64_t> elements(count);
  if (!values || !elements) return out_of_memory(api, graph.op);
  for (size_t w = 0; w < count; ++w) {
    const WeightSpec& weight = graph.weights[w];
    elements[w] = weight.bytes / element_size(weight.dtype);
    values[w] = {graph.execution->weights[w], const_cast<void*>(weights[w]), &elements[w], 1, weight.dtype};
    host_memory::begin(weights[w], static_cast<size_t>(weight.bytes), true);
  }
  const char* failure = model().set_constants(state, values.items, count);
  return failure == nullptr ? nullptr : say(ort::fail, failure);
}

inline ort::Status* Kernel::load(const ort::KernelInfo* info, Setting setting) {
  if (auto* status = OrtKernel::load(info)) return status;
  int id = 0;
  if (auto* status = device(&id)) return status;
  const AitNames inputs{graph.execution->inputs, static_cast<size_t>(graph.input_count)};
  const AitNames outputs{graph.execution->outputs, static_cast<size_t>(graph.output_count)};
  if (const char* failure = model().create(id, setting.count(), {this, allocate, release}, inputs, outputs, &state))
    return say(ort::fail, failure);
  return set_constants();
}

// AITemplate's kernels read and write up to 16 bytes at once. ONNX Runtime's own memory is aligned to more, but a caller may bind
// any address.
inline ort::Status* Kernel::check_alignment(const char* kind, const TensorSpec& tensor, const void* data) const {
  if (reinterpret_cast<uintptr_t>(data) % 16 == 0) return nullptr;
  return refuse(api, ort::invalid_argument,
                "%s: the memory of %s '%s' begins at no multiple of 16 bytes; bind memory that does",
                Name(graph.op).text, kind, Name(tensor.name).text);
}

// The GPU tells of a bad index when it gets there, which is behind this run, or behind later ones: what was computed with it is 0, and
// the next run that knows fails.
inline ort::Status* Kernel::check_indices() const {
  const int32_t fault = model().take_fault(state);
  if (fault == 0) return nullptr;
  return refuse(api, ort::invalid_argument,
                "%s: an index of node '%s' is out of range, in this run or an earlier one; the elements that it stands "
                "for were computed as 0",
                Name(graph.op).text, Name(graph.execution->checked[fault - 1]).text);
}

inline ort::Status* Kernel::compute(ort::KernelContext* context) const {
  Call call(*this);
  if (auto* status = call.prepare(context)) return status;
  if (!call.work) return nullptr;
  const Execution& execution = *graph.execution;
  Array<AitValue> inputs(graph.input_count), outputs(graph.output_count);
  Array<int64_t> sizes(execution.symbol_count);
  if (!inputs || !outputs || !sizes) return out_of_memory(api, graph.op);
  for (int32_t i = 0; i < execution.symbol_count; ++i) sizes[i] = call.symbols[execution.symbols[i]];
  for (int32_t i = 0; i < graph.input_count; ++i) {
    const TensorSpec& input = graph.inputs[i];
    if (auto* status = check_alignment("input", input, call.inputs[i])) return status;
    inputs[i] = {graph.execution->inputs[i], const_cast<void*>(call.inputs[i]), call.shapes[i].dims,
                 static_cast<size_t>(input.rank), input.dtype};
  }
  const int64_t* dims = call.sizes.items;
  for (int32_t o = 0; o < graph.output_count; dims += graph.outputs[o].rank, ++o) {
    const TensorSpec& output = graph.outputs[o];
    if (auto* status = check_alignment("output", output, call.outputs[o])) return status;
    outputs[o] = {graph.execution->outputs[o], call.outputs[o], dims, static_cast<size_t>(output.rank), output.dtype};
  }
  void* stream = nullptr;
  if (auto* status = ort::context_gpu_stream(api, context, &stream)) return status;
  const host_memory::Lent lent_inputs(inputs.items, static_cast<size_t>(graph.input_count), true),
      lent_outputs(outputs.items, static_cast<size_t>(graph.output_count), false);
  if (auto* status = check_indices()) return status;
  const char* failure = model().run(state, inputs.items, outputs.items, sizes.items, stream);
  return failure == nullptr ? check_indices() : say(ort::runtime_exception, failure);
}

}  // namespace ortisan
