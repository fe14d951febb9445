// Counts calls, lets them fail, and keeps the last launches.
#include "calls.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "emulated.h"

namespace {

constexpr int kept = 64, words_kept = 4;

struct Noted {
  std::string kernel;
  uint64_t arguments[words_kept];
  uint64_t sizes[7];
};

std::map<std::string, int64_t> calls;
std::string failing;
int64_t failing_after = 0;
std::atomic<bool> all_is_host{false}, emulates{false};
std::atomic<void (*)(const char*)> watcher{nullptr};
Noted launches[kept];
int64_t launch_count = 0, refusal_count = 0;
std::string refusal;
thread_local int on_other_devices = 0;

void write(const std::string& text, char* place, size_t size) {
  if (size == 0) return;
  std::strncpy(place, text.c_str(), size - 1);
  place[size - 1] = '\0';
}

}  // namespace

namespace ortisan::cuda {

bool emulated::host_memory() { return all_is_host; }
bool emulated::is_wanted() { return emulates; }

cudaError_t called(const char* function) {
  std::lock_guard<std::mutex> guard(lock());
  ++calls[function];
  const bool fails = failing == function && failing_after-- == 0;
  return fails ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

void note_launch(const Function& function, const Launch& launch, void** arguments) {
  if (current_device() != 0) ++on_other_devices;
  if (auto* watch = watcher.load()) watch(function.name.c_str());
  std::lock_guard<std::mutex> guard(lock());
  Noted& noted = launches[launch_count++ % kept];
  noted.kernel = function.name;
  const uint64_t sizes[] = {launch.grid.x,  launch.grid.y,  launch.grid.z, launch.block.x,
                            launch.block.y, launch.block.z, launch.shared};
  std::copy(std::begin(sizes), std::end(sizes), noted.sizes);
  // The kernels whose arguments are looked at begin with three pointers.
  const bool pointers = function.name.find("fused_elementwise") != std::string::npos;
  for (int i = 0; i < words_kept; ++i) {
    noted.arguments[i] = 0;
    if (pointers) std::memcpy(&noted.arguments[i], arguments[std::min(i, 2)], sizeof noted.arguments[i]);
  }
}

void note_refusal(const std::string& what) {
  std::lock_guard<std::mutex> guard(lock());
  ++refusal_count;
  refusal = what;
}

}  // namespace ortisan::cuda

using namespace ortisan::cuda;

extern "C" {

int64_t ortisan_cuda_calls(const char* function) {
  std::lock_guard<std::mutex> guard(lock());
  return calls[function];
}
void ortisan_cuda_fail(const char* function, int64_t after) {
  std::lock_guard<std::mutex> guard(lock());
  failing = function, failing_after = after;
}
void ortisan_cuda_emulate() { emulates = true; }
void ortisan_cuda_watch(void (*watch)(const char*)) { watcher = watch; }

int ortisan_cuda_launch(int64_t ago, char* kernel, size_t size, uint64_t* arguments, int words, uint64_t* sizes) {
  std::lock_guard<std::mutex> guard(lock());
  if (ago >= launch_count || ago >= kept) return 0;
  const Noted& noted = launches[(launch_count - 1 - ago) % kept];
  write(noted.kernel, kernel, size);
  std::copy(noted.arguments, noted.arguments + std::min(words, words_kept), arguments);
  std::copy(std::begin(noted.sizes), std::end(noted.sizes), sizes);
  return 1;
}

void ortisan_cuda_refusal(char* text, size_t size) {
  std::lock_guard<std::mutex> guard(lock());
  write(refusal, text, size);
}
int64_t ortisan_cuda_refusals() {
  std::lock_guard<std::mutex> guard(lock());
  return refusal_count;
}

void ortisan_cuda_host_memory(int on) { all_is_host = on != 0; }
void ortisan_cuda_use_device(int id) { cudaSetDevice(id); }
int ortisan_cuda_launches_on_other_devices() { return on_other_devices; }

}  // extern "C"
