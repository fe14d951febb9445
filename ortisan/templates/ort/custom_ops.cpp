// The library's only exported function. It offers every compiled graph to ONNX Runtime as a custom op of the library's domain.
//
// ORTISAN_ISA is the target's name, ORTISAN_CPU_FEATURES the space-separated features that its code needs.

#include <atomic>
#include <exception>

#include "cpu_features.h"
#include "ort_kernel.h"
#include "ort_shapes.h"

namespace ortisan {
namespace {

// An op as ONNX Runtime sees it (the first part), and what its functions need to know.
struct GraphOp : ort::CustomOp {
  const GraphSpec* graph;
  const ort::Api* api;
};

const GraphSpec& graph_of(const ort::CustomOp* op) { return *static_cast<const GraphOp*>(op)->graph; }

int32_t input_type(const ort::CustomOp* op, size_t index) {
  const GraphSpec& graph = graph_of(op);
  const size_t inputs = static_cast<size_t>(graph.input_count);
  return index < inputs ? graph.inputs[index].dtype : graph.weights[index - inputs].dtype;
}

// What a callback of ONNX Runtime must not do is throw: the little that can be thrown here becomes a status.
template <class F>
ort::Status* guarded(const ort::Api& api, const GraphSpec& graph, const F& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    return refuse(api, ort::runtime_exception, "%s: %s", Name(graph.op).text, error.what());
  }
}

ort::Status* create_kernel(const ort::CustomOp* op, const ort::Api* api, const ort::KernelInfo* info, void** kernel) {
  return guarded(*api, graph_of(op), [&] {
    auto made = std::make_unique<OrtKernel>(*api, graph_of(op));
    ort::Status* status = made->load(info);
    if (status == nullptr) *kernel = made.release();
    return status;
  });
}

ort::Status* compute(void* self, ort::KernelContext* context) {
  const OrtKernel& kernel = *static_cast<const OrtKernel*>(self);
  return guarded(kernel.api, kernel.graph, [&] { return kernel.compute(context); });
}

ort::Status* infer_output_shape(const ort::CustomOp* op, ort::ShapeInferContext* context) {
  const ort::Api& api = *static_cast<const GraphOp*>(op)->api;
  succeeded(api, guarded(api, graph_of(op), [&]() -> ort::Status* {
    infer_shapes(api, graph_of(op), context);
    return nullptr;
  }));
  return nullptr;
}

GraphOp make_op(const GraphSpec& graph, const ort::Api& api) {
  GraphOp op{};
  op.version = ort::api_version;
  op.name = [](const ort::CustomOp* self) { return graph_of(self).op; };
  op.execution_provider = [](const ort::CustomOp*) { return "CPUExecutionProvider"; };
  op.input_type = input_type;
  op.input_count = [](const ort::CustomOp* self) {
    return static_cast<size_t>(graph_of(self).input_count + graph_of(self).weight_count);
  };
  op.output_type = [](const ort::CustomOp* self, size_t index) { return graph_of(self).outputs[index].dtype; };
  op.output_count = [](const ort::CustomOp* self) { return static_cast<size_t>(graph_of(self).output_count); };
  op.input_characteristic = [](const ort::CustomOp*, size_t) { return ort::required; };
  op.output_characteristic = [](const ort::CustomOp*, size_t) { return ort::required; };
  op.input_memory_type = [](const ort::CustomOp*, size_t) { return ort::default_memory; };
  op.create_kernel_v2 = create_kernel;
  op.kernel_compute_v2 = compute;
  op.kernel_destroy = [](void* self) { delete static_cast<OrtKernel*>(self); };
  op.infer_output_shape = infer_output_shape;
  op.graph = &graph;
  op.api = &api;
  return op;
}

// A domain with its ops, made once per ONNX Runtime in the process and then only read, by any number of sessions.
struct Registration {
  const ort::Api& api;
  ort::CustomOpDomain* domain = nullptr;
  std::vector<GraphOp> ops;
  Registration* next = nullptr;

  explicit Registration(const ort::Api& a) : api(a) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    if (domain != nullptr) ort::release_custom_op_domain(api, domain);
  }

  ort::Status* fill() {
    if (auto* status = ort::create_custom_op_domain(api, domain_name, &domain)) return status;
    ops.reserve(static_cast<size_t>(graph_spec_count));
    for (int32_t g = 0; g < graph_spec_count; ++g) {
      ops.push_back(make_op(*graph_specs[g], api));
      if (auto* status = ort::custom_op_domain_add(api, domain, &ops.back())) return status;
    }
    return nullptr;
  }
};

// Grows at its head and is never freed: sessions that outlive the program's static objects still use the ops.
std::atomic<Registration*> registrations{nullptr};

ort::Status* find_registration(const ort::Api& api, Registration** found) {
  for (Registration* r = registrations.load(std::memory_order_acquire); r != nullptr; r = r->next) {
    if (&r->api != &api) continue;
    *found = r;
    return nullptr;
  }
  auto made = std::make_unique<Registration>(api);
  if (auto* status = made->fill()) return status;
  *found = made.release();
  (*found)->next = registrations.load(std::memory_order_relaxed);
  while (!registrations.compare_exchange_weak((*found)->next, *found, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return nullptr;
}

ort::Status* register_all(ort::SessionOptions* options, const ort::Api& api) {
  try {
    Registration* registration = nullptr;
    if (auto* status = find_registration(api, &registration)) return status;
    return ort::add_custom_op_domain(api, options, registration->domain);
  } catch (const std::exception& error) {
    return refuse(api, ort::fail, "%s can't be registered: %s", domain_name, error.what());
  }
}

}  // namespace
}  // namespace ortisan

// Up to the check of the CPU, nothing runs here that is not internal to this file.
extern "C" __attribute__((visibility("default"))) ort::Status* RegisterCustomOps(ort::SessionOptions* options,
                                                                                 const ort::ApiBase* base) {
  constexpr size_t size = 256;
  char sentence[size];
  char missing[32];
  const ort::Api* oldest = base->get_api(1);
  if (oldest != nullptr && ortisan::find_missing_feature(ORTISAN_CPU_FEATURES, missing, sizeof missing)) {
    std::snprintf(sentence, size, "this library was built for %s CPUs, but this CPU has no %s; rebuild it for this machine's target",
                  ORTISAN_ISA, missing);
    return ort::create_status(*oldest, ort::fail, sentence);
  }
  const ort::Api* api = base->get_api(ort::api_version);
  if (api != nullptr) return ortisan::register_all(options, *api);
  if (oldest == nullptr) return nullptr;
  std::snprintf(sentence, size, "this library needs ONNX Runtime 1.18 or newer, this is %s", base->version_string());
  return ort::create_status(*oldest, ort::fail, sentence);
}
