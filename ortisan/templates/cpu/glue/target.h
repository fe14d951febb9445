// The CPU target's part of the glue: kernels read weights where ONNX Runtime mapped them or in a copy, take scratch memory from its
// allocator and run on its thread pool.
//
// ORTISAN_ISA is the target's name, ORTISAN_CPU_FEATURES the space-separated features that its code needs.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "cpu_features.h"
#include "ort_call.h"
#include "weight_copy.h"

namespace ortisan {

constexpr const char* execution_provider = "CPUExecutionProvider";

// The session config entry custom_op.OP.weights.
using Setting = Weights;
constexpr const char* setting_key = "weights";
constexpr const char* setting_choices = "auto, mapped or huge";
inline bool parse_setting(const char* text, Setting* meaning) { return parse_weights(text, meaning); }

// Tells why this machine can't run the library. Called before anything of the kernels' instruction set may run.
namespace {
inline bool is_unusable(char* sentence, size_t size) {
  char missing[32];
  if (!find_missing_feature(ORTISAN_CPU_FEATURES, missing, sizeof missing)) return false;
  std::snprintf(sentence, size,
                "this library was built for %s CPUs, but this CPU has no %s; rebuild it for this machine's target",
                ORTISAN_ISA, missing);
  return true;
}
}  // namespace

struct Kernel : OrtKernel {
  WeightCopy* copy = nullptr;

  Kernel(const ort::Api& a, const GraphSpec& g) : OrtKernel(a, g) {}
  ~Kernel() { leave_copy(copy); }

  ort::Status* load(const ort::KernelInfo* info, Setting setting) {
    if (auto* status = OrtKernel::load(info)) return status;
    if (wants_copy(graph, setting)) copy = use_copy(graph, weights.items);
    return nullptr;
  }
  ort::Status* compute(ort::KernelContext* context) const;
};

// Under AddressSanitizer a fence of forbidden bytes stands on both sides of the scratch block: ONNX Runtime's allocator takes
// blocks out of larger ones, where nobody else would notice an overrun.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t fence = 64;
inline void forbid(const char* start, size_t bytes) { __asan_poison_memory_region(start, bytes); }
inline void allow(const char* start, size_t bytes) { __asan_unpoison_memory_region(start, bytes); }
#else
constexpr size_t fence = 0;
inline void forbid(const char*, size_t) {}
inline void allow(const char*, size_t) {}
#endif

// One block of scratch memory for one call, on a cache line's boundary.
struct Scratch {
  const OrtKernel& kernel;
  void* block = nullptr;
  size_t size = 0;
  char* data = nullptr;

  explicit Scratch(const OrtKernel& k) : kernel(k) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (block == nullptr) return;
    allow(data - fence, size + 2 * fence);
    succeeded(kernel.api, ort::allocator_free(kernel.api, kernel.allocator, block));
  }
  ort::Status* reserve(int64_t bytes) {
    constexpr int64_t more = 63 + 2 * fence;
    if (bytes < 0 || bytes > most_bytes)
      return refuse(kernel.api, ort::invalid_argument,
                    "%s: the inputs are too large: a call would take over 2^47 bytes of working memory",
                    Name(kernel.graph.op).text);
    if (bytes == 0) return nullptr;
    size = static_cast<size_t>(bytes);
    if (auto* status = ort::allocator_alloc(kernel.api, kernel.allocator, size + more, &block)) return status;
    if (block == nullptr) return out_of_memory(kernel.api, kernel.graph.op);
    data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(block) + fence + 63) & ~static_cast<uintptr_t>(63));
    forbid(data - fence, fence);
    forbid(data + size, fence);
    return nullptr;
  }
};

// ONNX Runtime's thread pool of the session, for one call. A status that it returns is kept for the end of the call.
struct SessionPool {
  const ort::Api& api;
  const ort::KernelContext* context;
  ort::Status* status = nullptr;

  Parallel handle() { return {this, &SessionPool::run}; }

  static void run(void* self, int64_t count, void (*task)(void*, int64_t), void* arg) {
    struct Job {
      void (*task)(void*, int64_t);
      void* arg;
    } job{task, arg};
    SessionPool& pool = *static_cast<SessionPool*>(self);
    auto* status = ort::context_parallel_for(
        pool.api, pool.context,
        [](void* user, size_t index) {
          static_cast<Job*>(user)->task(static_cast<Job*>(user)->arg, static_cast<int64_t>(index));
        },
        static_cast<size_t>(count), 0, &job);
    if (pool.status == nullptr)
      pool.status = status;
    else
      succeeded(pool.api, status);
  }
};

inline ort::Status* Kernel::compute(ort::KernelContext* context) const {
  Call call(*this);
  if (auto* status = call.prepare(context)) return status;
  if (!call.work) return nullptr;
  const Execution& execution = *graph.execution;
  Scratch scratch(*this);
  if (auto* status = scratch.reserve(execution.scratch_bytes(call.symbols.items))) return status;
  SessionPool pool{api, context};
  const char* failure = execution.run(call.symbols.items, call.inputs.items, weights.items, call.outputs.items,
                                      scratch.data, pool.handle());
  if (pool.status != nullptr) return pool.status;
  return failure == nullptr ? nullptr : refuse(api, ort::runtime_exception, "%s: %s", Name(graph.op).text, failure);
}

}  // namespace ortisan
