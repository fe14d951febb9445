// What the test drivers share: a context whose pool has a settable number of threads, and functions found by name.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "parallel.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace driver {

inline int threads = 1;

inline void run(void*, int64_t count, void (*task)(void*, int64_t), void* arg) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) task(arg, i);
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(work);
  work();
  for (std::thread& t : pool) t.join();
}

struct TestContext : ortisan::Context {
  TestContext() : Context(ortisan::Parallel{nullptr, threads > 1 ? run : nullptr}) {}
};

inline bool same(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

}  // namespace driver

EXPORT void set_threads(int threads) { driver::threads = threads; }
