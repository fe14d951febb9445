// One AITemplate model behind the plain functions of ait_model.h. It is compiled once per model, as one source with AITemplate's
// container, whose three files would each parse the same headers. Everything but ORTISAN_MODEL becomes local to the model when it is
// linked, so that several models fit into one library.
//
// No exception leaves this file.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "ait_model.h"
#include "ait_queue.h"
#define cudaEventQuery ::ortisan::queue_behind
#include "model_container.cu"
#include "model_container_base.cu"
#include "model_interface.cu"
#undef cudaEventQuery

namespace ortisan {
namespace {

// The last message of AITemplate on this thread: after a failure, the reason.
constexpr size_t message_size = 600;
thread_local char message[message_size];

void keep_message(const char* text) {
  size_t length = 0;
  for (; text[length] != '\0' && length < message_size - 1; ++length)
    message[length] = text[length] == '\n' ? ' ' : text[length];
  message[length] = '\0';
}

// Log lines look like "[12:34:56] file:12: Error: what happened".
void keep_log_line(const char* text) {
  for (const char* mark : {"] ", ": "})
    if (const char* found = std::strstr(text, mark)) text = found + 2;
  keep_message(std::strncmp(text, "Error: ", 7) == 0 ? text + 7 : text);
}

bool failed(AITemplateError result) { return result != AITemplateError::AITemplateSuccess; }

const char* why() { return message[0] == '\0' ? "AITemplate failed and gave no reason" : message; }

const char* cuda_failure(const char* what, cudaError_t error) {
  std::snprintf(message, sizeof message, "%s: %s", what, cudaGetErrorString(error));
  return message;
}

// Makes a device current for as long as it lives.
struct DeviceScope {
  int before = 0;
  bool changed = false;
  cudaError_t error;

  explicit DeviceScope(int device) : error(cudaGetDevice(&before)) {
    message[0] = '\0';
    if (error != cudaSuccess || before == device) return;
    error = cudaSetDevice(device);
    changed = error == cudaSuccess;
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() {
    if (changed) cudaSetDevice(before);
  }
};

struct BorrowedMemory final : AITemplateAllocator {
  AitMemory memory;

  explicit BorrowedMemory(AitMemory m) : memory(m) {}
  void* Allocate(size_t bytes) override {
    void* block = memory.allocate(memory.self, bytes);
    if (block == nullptr && bytes > 0)
      throw std::runtime_error("no memory for a buffer of " + std::to_string(bytes) +
                               " bytes; lower the upper bounds of the dims");
    return block;
  }
  void Free(void* block) override {
    if (block != nullptr) memory.release(memory.self, block);
  }
};

}  // namespace

// Buffers for one run at a time, and the stream that the last one went to.
struct AitRuntime {
  AITemplateModelHandle handle = nullptr;
  void* stream = nullptr;
  uint64_t last_run = 0;  // 0: never

  AitRuntime() = default;
  AitRuntime(const AitRuntime&) = delete;
  AitRuntime& operator=(const AitRuntime&) = delete;
  ~AitRuntime() {
    if (handle != nullptr) AITemplateModelContainerDelete(handle);
  }
};

struct AitModelState {
  int device;
  BorrowedMemory memory;
  std::vector<std::unique_ptr<AitRuntime>> runtimes;
  std::vector<size_t> inputs, outputs;  // the model's, as places in the graph's order
  std::mutex queueing;
  uint64_t runs = 0;
  int32_t* fault = nullptr;  // memory of the host that kernels write to

  AitModelState(int d, AitMemory m) : device(d), memory(m) {}
  AitModelState(const AitModelState&) = delete;
  AitModelState& operator=(const AitModelState&) = delete;
  ~AitModelState() {
    if (fault != nullptr) cudaFreeHost(fault);
  }
};

namespace {

AITemplateDtype dtype_of(int32_t onnx) {
  switch (onnx) {
    case 1: return AITemplateDtype::kFloat;
    case 6: return AITemplateDtype::kInt;
    case 7: return AITemplateDtype::kLong;
    case 9: return AITemplateDtype::kBool;
    case 10: return AITemplateDtype::kHalf;
    case 16: return AITemplateDtype::kBFloat16;
    default: return AITemplateDtype::kUnset;
  }
}

// AITemplate takes null for a tensor that was not set; one without elements has some address that is never read.
AITData data_of(const AitValue& value) {
  static char nothing;
  return {value.data == nullptr ? &nothing : value.data, {value.dims, value.rank}, dtype_of(value.dtype)};
}

using CountFunction = AITemplateError (*)(AITemplateModelHandle, size_t*);
using NameFunction = AITemplateError (*)(AITemplateModelHandle, size_t, const char**);

// Where each tensor of the model is among `names`.
std::vector<size_t> places(AITemplateModelHandle handle, CountFunction count_of, NameFunction name_of, AitNames names) {
  size_t count = 0;
  if (failed(count_of(handle, &count))) throw std::runtime_error(why());
  std::vector<size_t> found(count);
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    if (failed(name_of(handle, i, &name))) throw std::runtime_error(why());
    const auto is_it = [&](const char* own) { return own != nullptr && std::strcmp(own, name) == 0; };
    found[i] = static_cast<size_t>(std::find_if(names.list, names.list + names.count, is_it) - names.list);
    if (found[i] == names.count)
      throw std::runtime_error(std::string("the graph has no '") + name + "', which the model needs");
  }
  return found;
}

// AITemplate and CUTLASS would take an earlier call's error for their own, and clearing it would hide it.
const char* check_earlier_calls() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr
                              : cuda_failure("an earlier CUDA call of this thread, not of this op, failed", error);
}

// Calls `f`, which returns null or a failure's text; an exception becomes that text. The error of a failure is no later call's.
template <class F>
const char* guarded(int device, F&& f) noexcept {
  try {
    DeviceScope scope(device);
    const char* failure =
        scope.error == cudaSuccess ? f() : cuda_failure("the session's device can't be used", scope.error);
    if (failure != nullptr) cudaGetLastError();
    return failure;
  } catch (const std::exception& error) {
    keep_message(error.what());
  } catch (...) {
    keep_message("unknown exception");
  }
  cudaGetLastError();
  return why();
}

const char* create(int device, size_t runtimes, AitMemory memory, AitNames inputs, AitNames outputs,
                   AitModelState** result) noexcept {
  return guarded(device, [&]() -> const char* {
    if (const char* failure = check_earlier_calls()) return failure;
    auto state = std::make_unique<AitModelState>(device, memory);
    const cudaError_t error = cudaMallocHost(reinterpret_cast<void**>(&state->fault), sizeof(int32_t));
    if (error != cudaSuccess) return cuda_failure("there is no memory of the host that the GPU can write to", error);
    *state->fault = 0;
    for (size_t i = 0; i < runtimes; ++i) {
      state->runtimes.push_back(std::make_unique<AitRuntime>());
      if (failed(AITemplateModelContainerCreate(&state->runtimes[i]->handle, 1, &state->memory))) return why();
    }
    const AITemplateModelHandle any = state->runtimes.front()->handle;
    state->inputs = places(any, AITemplateModelContainerGetNumInputs, AITemplateModelContainerGetInputName, inputs);
    state->outputs = places(any, AITemplateModelContainerGetNumOutputs, AITemplateModelContainerGetOutputName, outputs);
    *result = state.release();
    return nullptr;
  });
}

void destroy(AitModelState* state) noexcept {
  guarded(state->device, [&]() -> const char* {
    cudaDeviceSynchronize();  // runs that are still queued use the buffers
    delete state;
    return nullptr;
  });
}

const char* check_place(const AitValue& constant) {
  if (constant.dims[0] == 0) return nullptr;
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, constant.data);
  if (error != cudaSuccess) return cuda_failure("a weight's memory can't be examined", error);
  if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) return nullptr;
  return "a weight is not in the GPU's memory; this ONNX Runtime keeps initializers of custom ops on the host";
}

const char* set_constants(AitModelState* state, const AitValue* constants, size_t count) noexcept {
  return guarded(state->device, [&]() -> const char* {
    if (const char* failure = check_earlier_calls()) return failure;
    std::vector<const char*> names;
    std::vector<AITData> tensors;
    const AITemplateModelHandle any = state->runtimes.front()->handle;
    for (size_t i = 0; i < count; ++i) {
      AITemplateDtype dtype;
      if (failed(AITemplateModelContainerGetConstantDtype(any, constants[i].name, &dtype))) continue;
      if (const char* failure = check_place(constants[i])) return failure;
      names.push_back(constants[i].name);
      tensors.push_back(data_of(constants[i]));
    }
    for (const auto& runtime : state->runtimes) {
      const AITemplateModelHandle handle = runtime->handle;
      if (failed(AITemplateModelContainerSetManyConstants(handle, names.data(), tensors.data(), names.size())))
        return why();
      if (failed(AITemplateModelContainerFoldConstants(handle, nullptr, true))) return why();
    }
    const cudaError_t error = cudaDeviceSynchronize();
    return error == cudaSuccess ? nullptr : cuda_failure("the constants can't be folded", error);
  });
}

using Dims = std::array<int64_t, 16>;  // no tensor of the op graph has more

std::string text_of(const int64_t* dims, size_t rank) {
  std::string text = "[";
  for (size_t d = 0; d < rank; ++d) text += (d == 0 ? "" : ", ") + std::to_string(dims[d]);
  return text + "]";
}

void check_shape(const AitValue& value, const Dims& found) {
  if (std::equal(value.dims, value.dims + value.rank, found.data())) return;
  throw std::runtime_error(std::string("AITemplate's '") + value.name + "' has the shape " +
                           text_of(found.data(), value.rank) + ", expected " + text_of(value.dims, value.rank));
}

// The runtime whose last run went to this stream, which needs not wait for it; else the one that rested longest.
AitRuntime& choose(AitModelState& state, void* stream) {
  AitRuntime* chosen = state.runtimes.front().get();
  for (const auto& runtime : state.runtimes) {
    if (runtime->last_run != 0 && runtime->stream == stream) return *runtime;
    if (runtime->last_run < chosen->last_run) chosen = runtime.get();
  }
  return *chosen;
}

const char* why_not_queued(void* stream) {
  cudaStreamCaptureStatus status;
  const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
  if (error != cudaSuccess) return cuda_failure("the session's stream can't be used", error);
  if (status == cudaStreamCaptureStatusNone) return nullptr;
  return "the stream is being captured as a CUDA graph, which this op can't be part of; open the session without it";
}

int32_t take_fault(AitModelState* state) noexcept { return __atomic_exchange_n(state->fault, 0, __ATOMIC_RELAXED); }

const char* run(AitModelState* state, const AitValue* inputs, const AitValue* outputs, const int64_t* sizes,
                void* stream) noexcept {
  return guarded(state->device, [&]() -> const char* {
    if (const char* failure = check_earlier_calls()) return failure;
    if (const char* failure = why_not_queued(stream)) return failure;
    std::vector<AITData> in, out;
    std::vector<Dims> shapes(state->outputs.size());
    std::vector<int64_t*> shape_places;
    for (const size_t place : state->inputs) in.push_back(data_of(inputs[place]));
    for (const size_t place : state->outputs) out.push_back(data_of(outputs[place]));
    for (Dims& shape : shapes) shape_places.push_back(shape.data());
    std::lock_guard<std::mutex> guard(state->queueing);
    AitRuntime& runtime = choose(*state, stream);
    stream_of_run = static_cast<cudaStream_t>(stream);
    sizes_of_run = sizes;
    fault_of_run = state->fault;
    runtime.stream = stream, runtime.last_run = ++state->runs;
    if (failed(AITemplateModelContainerRun(runtime.handle, in.data(), in.size(), out.data(), out.size(),
                                           static_cast<AITemplateStreamHandle>(stream), false, false,
                                           shape_places.data()))) {
      cudaStreamSynchronize(stream_of_run);  // what was queued before the failure uses the runtime's buffers
      return why();
    }
    for (size_t o = 0; o < shapes.size(); ++o) check_shape(outputs[state->outputs[o]], shapes[o]);
    return nullptr;
  });
}

}  // namespace
}  // namespace ortisan

void dmlc::CustomLogMessage::Log(const std::string& text) { ortisan::keep_log_line(text.c_str()); }

extern "C" const ortisan::AitModel ORTISAN_MODEL;
extern "C" const ortisan::AitModel ORTISAN_MODEL = {ortisan::create, ortisan::destroy, ortisan::set_constants,
                                                    ortisan::run, ortisan::take_fault};
