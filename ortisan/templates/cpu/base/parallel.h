// How kernels reach a thread pool without knowing whose it is: ONNX Runtime's, or the direct binding's own.
#pragma once

#include <atomic>
#include <cstdint>

namespace ortisan {

// A non-owning handle of a thread pool. `run` calls task(arg, i) once for every i in [0, count), on any threads, and
// returns when all are done. Kernels choose `count` from the problem alone, never from the number of threads, so results
// are bit-equal on any pool.
struct Parallel {
  void* self;
  void (*run)(void* self, int64_t count, void (*task)(void* arg, int64_t index), void* arg);

  // f(0), f(1), ... f(count - 1), in parallel where there is a pool.
  template <class F>
  void operator()(int64_t count, const F& f) const {
    if (count <= 1 || run == nullptr) {
      for (int64_t i = 0; i < count; ++i) f(i);
      return;
    }
    run(
        self, count, [](void* arg, int64_t index) { (*static_cast<const F*>(arg))(index); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }
};

// What one run of a graph carries from kernel to kernel.
struct Context {
  Parallel parallel;
  std::atomic<const char*> failure{nullptr};

  Context(Parallel p) : parallel(p) {}

  // Notes a failure found inside a kernel; the first message wins. `message` must have static storage.
  void fail(const char* message) {
    const char* none = nullptr;
    failure.compare_exchange_strong(none, message);
  }
};

}  // namespace ortisan
