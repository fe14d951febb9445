// The library's only exported function. It offers every compiled graph to ONNX Runtime as a custom op of the library's domain.
// What differs from target to target is in target.h.

#include <atomic>
#include <new>

#include "ort_shapes.h"
#include "target.h"

namespace ortisan {
namespace {

struct Registration;

// An op as ONNX Runtime sees it (the first part), and what its functions need to know.
struct GraphOp : ort::CustomOp {
  const GraphSpec* graph;
  Registration* home;
  Setting setting;
};

const GraphSpec& graph_of(const ort::CustomOp* op) { return *static_cast<const GraphOp*>(op)->graph; }

int32_t input_type(const ort::CustomOp* op, size_t index) {
  const GraphSpec& graph = graph_of(op);
  const size_t inputs = static_cast<size_t>(graph.input_count);
  return index < inputs ? graph.inputs[index].dtype : graph.weights[index - inputs].dtype;
}

// Objects live in malloc's memory: the C++ library's operator new would bring exceptions along.
template <class T, class... Arguments>
T* create(Arguments&... arguments) {
  void* memory = std::malloc(sizeof(T));
  return memory == nullptr ? nullptr : new (memory) T(arguments...);
}

template <class T>
void destroy(T* object) {
  if (object != nullptr) object->~T();
  std::free(object);
}

// A domain with its ops, made once for each choice of settings and each ONNX Runtime in the process, and then only read, by any
// number of sessions.
struct Registration {
  const ort::Api& api;
  ort::CustomOpDomain* domain = nullptr;
  Array<GraphOp> ops;
  Registration* next = nullptr;
  std::atomic<int64_t> kernels{0};  // that exist now

  explicit Registration(const ort::Api& a) : api(a), ops(graph_spec_count) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    if (domain != nullptr) ort::release_custom_op_domain(api, domain);
  }
  ort::Status* fill(const Array<Setting>& settings);
  bool has(const Array<Setting>& settings) const;
};

// A kernel that is counted while it exists.
struct HomedKernel : Kernel {
  Registration& home;
  HomedKernel(const ort::Api& api, const GraphSpec& graph, Registration& h) : Kernel(api, graph), home(h) {
    ++home.kernels;
  }
  ~HomedKernel() { --home.kernels; }
};

ort::Status* create_kernel(const ort::CustomOp* op, const ort::Api* api, const ort::KernelInfo* info, void** result) {
  const GraphOp& own = *static_cast<const GraphOp*>(op);
  auto* kernel = create<HomedKernel>(*api, *own.graph, *own.home);
  ort::Status* status = kernel == nullptr ? out_of_memory(*api, own.graph->op) : kernel->load(info, own.setting);
  if (status == nullptr)
    *result = kernel;
  else
    destroy(kernel);
  return status;
}

ort::Status* compute(void* kernel, ort::KernelContext* context) {
  return static_cast<const HomedKernel*>(kernel)->compute(context);
}

ort::Status* infer_output_shape(const ort::CustomOp* op, ort::ShapeInferContext* context) {
  infer_shapes(static_cast<const GraphOp*>(op)->home->api, graph_of(op), context);
  return nullptr;
}

GraphOp make_op(const GraphSpec& graph, Registration* home, Setting setting) {
  GraphOp op{};
  op.version = ort::api_version;
  op.name = [](const ort::CustomOp* self) { return graph_of(self).op; };
  op.execution_provider = [](const ort::CustomOp*) { return execution_provider; };
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
  op.kernel_destroy = [](void* self) { destroy(static_cast<HomedKernel*>(self)); };
  op.infer_output_shape = infer_output_shape;
  op.may_inplace = graph.shared;
  op.release_may_inplace = [](int*, int*) {};
  op.graph = &graph;
  op.home = home;
  op.setting = setting;
  return op;
}

ort::Status* Registration::fill(const Array<Setting>& settings) {
  if (!ops) return out_of_memory(api, domain_name);
  if (auto* status = ort::create_custom_op_domain(api, domain_name, &domain)) return status;
  for (int32_t g = 0; g < graph_spec_count; ++g) {
    ops[g] = make_op(*graph_specs[g], this, settings[g]);
    if (auto* status = ort::custom_op_domain_add(api, domain, &ops[g])) return status;
  }
  return nullptr;
}

bool Registration::has(const Array<Setting>& settings) const {
  for (int32_t g = 0; g < graph_spec_count; ++g)
    if (ops[g].setting != settings[g]) return false;
  return true;
}

// All registrations, the newest first. They are freed with the library, which ONNX Runtime unloads after the last session; but at
// the end of a process that still has a session they are left, because the session uses them until it ends itself.
struct Registrations {
  std::atomic<Registration*> first{nullptr};

  ~Registrations() {
    for (Registration* r = first.load(); r != nullptr;) {
      Registration* next = r->next;
      if (r->kernels == 0) destroy(r);
      r = next;
    }
  }
};
Registrations registrations;

ort::Status* find_registration(const ort::Api& api, const Array<Setting>& settings, Registration** found) {
  for (Registration* r = registrations.first.load(std::memory_order_acquire); r != nullptr; r = r->next) {
    if (&r->api != &api || !r->has(settings)) continue;
    *found = r;
    return nullptr;
  }
  Registration* made = create<Registration>(api);
  if (ort::Status* status = made == nullptr ? out_of_memory(api, domain_name) : made->fill(settings)) {
    destroy(made);
    return status;
  }
  made->next = registrations.first.load(std::memory_order_acquire);
  while (!registrations.first.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
  }
  *found = made;
  return nullptr;
}

// The session's setting for an op. A kernel can't ask for it in the oldest ONNX Runtime, so it is read here, off the options: an
// entry counts when it is there before the library is registered.
ort::Status* read_setting(const ort::SessionOptions* options, const ort::Api& api, const char* op, Setting* setting) {
  char key[256];
  std::snprintf(key, sizeof key, "custom_op.%s.%s", op, setting_key);
  int there = 0;
  if (auto* status = ort::has_config_entry(api, options, key, &there)) return status;
  if (there == 0) return nullptr;
  size_t size = 0;
  if (auto* status = ort::get_config_entry(api, options, key, nullptr, &size)) return status;
  Array<char> text(size);
  if (!text) return out_of_memory(api, op);
  if (auto* status = ort::get_config_entry(api, options, key, text.items, &size)) return status;
  if (parse_setting(text.items, setting)) return nullptr;
  return refuse(api, ort::invalid_argument, "%s: the session config entry '%s' is '%s', expected %s", Name(op).text,
                key, Name(text.items).text, setting_choices);
}

// The entry of session options in which this library is registered. A second registration is none: ONNX Runtime refuses
// options that have a domain twice.
constexpr size_t max_domain = 200;

ort::Status* register_all(ort::SessionOptions* options, const ort::Api& api) {
  char registered[max_domain + 16];
  std::snprintf(registered, sizeof registered, "%s.registered", domain_name);
  int there = 0;
  if (auto* status = ort::has_config_entry(api, options, registered, &there)) return status;
  if (there != 0) return nullptr;
  Array<Setting> settings(graph_spec_count);
  if (!settings) return out_of_memory(api, domain_name);
  for (int32_t g = 0; g < graph_spec_count; ++g)
    if (auto* status = read_setting(options, api, graph_specs[g]->op, &settings[g])) return status;
  Registration* registration = nullptr;
  if (auto* status = find_registration(api, settings, &registration)) return status;
  if (auto* status = ort::add_custom_op_domain(api, options, registration->domain)) return status;
  return ort::add_config_entry(api, options, registered, "1");
}

}  // namespace
}  // namespace ortisan

// Up to the check of the machine, nothing runs here that is not internal to this file.
extern "C" __attribute__((visibility("default"))) ort::Status* RegisterCustomOps(ort::SessionOptions* options,
                                                                                 const ort::ApiBase* base) {
  constexpr size_t size = 256;
  char sentence[size];
  const ort::Api* oldest = base->get_api(1);
  if (oldest != nullptr && ortisan::is_unusable(sentence, size))
    return ort::create_status(*oldest, ort::fail, sentence);
  const ort::Api* api = base->get_api(ort::api_version);
  if (api != nullptr) return ortisan::register_all(options, *api);
  if (oldest == nullptr) return nullptr;
  std::snprintf(sentence, size, "this library needs ONNX Runtime 1.18 or newer, this is %s", base->version_string());
  return ort::create_status(*oldest, ort::fail, sentence);
}
