// Launches: what a driver checks before it queues one, and how many blocks fit onto a multiprocessor.
#include <algorithm>

#include "calls.h"
#include "emulated.h"
#include "runtime.h"

namespace ortisan::cuda {
namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local Configuration configuration;
constexpr size_t most_of_name = 100;

std::string text_of(dim3 size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

cudaError_t refuse(cudaError_t error, const std::string& why) {
  note_refusal(why);
  return fail(error, why);
}

cudaError_t refuse(cudaError_t error, const Function& function, const std::string& why) {
  const std::string name = function.name.substr(0, most_of_name);
  return refuse(error, name + (name.size() < function.name.size() ? "...: " : ": ") + why);
}

cudaError_t check(const Function& function, const Launch& launch) {
  const dim3 grid = launch.grid, block = launch.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    return refuse(cudaErrorInvalidConfiguration, function, "there is no grid of " + text_of(grid));
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > threads_per_block || block.x > 1024 || block.y > 1024 || block.z > 64)
    return refuse(cudaErrorInvalidConfiguration, function, "there is no block of " + text_of(block));
  if (threads > static_cast<uint64_t>(function.most_threads))
    return refuse(cudaErrorInvalidValue, function,
                  "a block of " + text_of(block) + ", and the kernel is for " + std::to_string(function.most_threads));
  if (launch.shared > function.most_dynamic_shared ||
      launch.shared + function.static_shared > limits().shared_per_block)
    return refuse(cudaErrorInvalidValue, function,
                  std::to_string(launch.shared) + " bytes of dynamic shared memory, and its attribute says " +
                      std::to_string(function.most_dynamic_shared));
  if (!is_stream(launch.stream)) return refuse(cudaErrorInvalidResourceHandle, function, "there is no such stream");
  return cudaSuccess;
}

cudaError_t occupancy(int* blocks, const void* stub, int threads, size_t shared) {
  std::lock_guard<std::mutex> guard(lock());
  Function* function = find_function(stub);
  if (function == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  if (threads <= 0 || threads > threads_per_block) return fail(cudaErrorInvalidValue);
  emulated::describe(*function);
  const size_t each = shared + function->static_shared + reserved_shared;
  const bool fits = shared <= function->most_dynamic_shared;
  const int by_shared = fits ? static_cast<int>(limits().shared_per_processor / each) : 0;
  *blocks = std::min({limits().blocks_per_processor, limits().threads_per_processor / threads, by_shared});
  return cudaSuccess;
}

}  // namespace

cudaError_t launch(const void* stub, const Launch& launch, void** arguments) {
  if (const cudaError_t failure = called("launch")) return failure;
  Function function;
  {
    std::lock_guard<std::mutex> guard(lock());
    Function* found = find_function(stub);
    if (found == nullptr) return fail(cudaErrorInvalidDeviceFunction);
    emulated::describe(*found);
    function = *found;
  }
  if (const cudaError_t failure = check(function, launch)) return failure;
  note_launch(function, launch, arguments);
  if (!emulated::is_linked()) return cudaSuccess;
  const unsigned grid[] = {launch.grid.x, launch.grid.y, launch.grid.z};
  const unsigned block[] = {launch.block.x, launch.block.y, launch.block.z};
  const int failure = ortisan_emulator_launch(function.name.c_str(), grid, block, launch.shared, arguments);
  return failure == 0 ? cudaSuccess : refuse(static_cast<cudaError_t>(failure), ortisan_emulator_error());
}

}  // namespace ortisan::cuda

using namespace ortisan::cuda;

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration.grid, *block = configuration.block, *shared = configuration.shared;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, {grid, block, shared, stream}, arguments);
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return launch(stub, {grid, block, shared, stream}, arguments);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* wanted, const void* stub, void** arguments) {
  return launch(stub, {wanted->gridDim, wanted->blockDim, wanted->dynamicSmemBytes, wanted->stream}, arguments);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub, int threads, size_t shared) {
  return occupancy(blocks, stub, threads, shared);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* stub, int threads,
                                                                   size_t shared, unsigned) {
  return occupancy(blocks, stub, threads, shared);
}

}  // extern "C"
