// The thread pool of graphs that run without ONNX Runtime.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel.h"

namespace ortisan {

// `threads` counts the caller. Workers look out for work for a moment and then sleep. One job runs at a time: a caller that
// finds the pool busy does its job alone.
//
// `joined_` counts the workers inside the current job; its top bit says that the job takes no more of them. The job's fields
// change only while it is closed and empty, so a worker that wakes up late joins the next job or none.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int t = 1; t < threads; ++t) workers_.emplace_back([this] { work(); });
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    if (getpid() != owner_) {  // after a fork the workers are not here to be waited for
      for (std::thread& worker : workers_) worker.detach();
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  Parallel handle() { return {this, workers_.empty() ? nullptr : &ThreadPool::run}; }

 private:
  using Task = void (*)(void*, int64_t);
  static constexpr uint32_t closed = uint32_t{1} << 31;
  static constexpr int spins = 4000;

  static void run(void* self, int64_t count, Task task, void* arg) {
    static_cast<ThreadPool*>(self)->start(count, task, arg);
  }

  void start(int64_t count, Task task, void* arg) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) {
      for (int64_t i = 0; i < count; ++i) task(arg, i);
      return;
    }
    wait_until_empty();
    task_ = task;
    arg_ = arg;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    joined_.fetch_and(~closed, std::memory_order_acq_rel);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      epoch_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    take_tasks();
    joined_.fetch_or(closed, std::memory_order_acq_rel);
    wait_until_empty();
  }

  void take_tasks() {
    for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) task_(arg_, i);
  }

  void wait_until_empty() const {
    for (int n = 0; joined_.load(std::memory_order_acquire) != closed; ++n) pause(n);
  }

  void work() {
    uint64_t seen = 0;
    while (wait_for_job(seen)) {
      seen = epoch_.load(std::memory_order_acquire);
      if ((joined_.fetch_add(1, std::memory_order_acq_rel) & closed) == 0) take_tasks();
      joined_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  bool wait_for_job(uint64_t seen) {
    for (int n = 0; n < spins; ++n) {
      if (epoch_.load(std::memory_order_acquire) != seen) return true;
      pause(0);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return stopping_ || epoch_.load(std::memory_order_acquire) != seen; });
    return !stopping_;
  }

  static void pause(int turn) {
    if (turn > spins) {
      std::this_thread::yield();
      return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
  }

  const pid_t owner_ = getpid();
  std::mutex turn_, mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::atomic<uint64_t> epoch_{0};
  std::atomic<uint32_t> joined_{closed};
  std::atomic<int64_t> next_{0};
  Task task_ = nullptr;
  void* arg_ = nullptr;
  int64_t count_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace ortisan
