// Memory: blocks of the host's, each known from its allocation to its end.
#include <cstdlib>
#include <cstring>
#include <map>

#include "emulated.h"
#include "runtime.h"

using namespace ortisan::cuda;

namespace {

constexpr size_t alignment = 256;

struct Block {
  size_t bytes;
  void* whole;
};
std::map<const void*, Block> on_device, on_host;
std::map<const void*, size_t> registered;

// Blocks begin at odd multiples of 256 bytes, so code that relies on more than cudaMalloc promises shows.
cudaError_t allocate(std::map<const void*, Block>& table, void** block, size_t bytes) {
  const size_t whole_bytes = (bytes + 3 * alignment) / (2 * alignment) * (2 * alignment) + alignment;
  char* whole =
      bytes == 0 ? nullptr : static_cast<char*>(std::aligned_alloc(2 * alignment, (whole_bytes + 511) / 512 * 512));
  *block = whole == nullptr ? nullptr : whole + alignment;
  if (bytes == 0) return cudaSuccess;
  if (whole == nullptr) return fail(cudaErrorMemoryAllocation);
  std::lock_guard<std::mutex> guard(lock());
  table[*block] = {bytes, whole};
  emulated::allocate(*block, bytes, false);
  return cudaSuccess;
}

cudaError_t release(std::map<const void*, Block>& table, void* block) {
  if (block == nullptr) return cudaSuccess;
  std::lock_guard<std::mutex> guard(lock());
  const auto found = table.find(block);
  if (found == table.end()) return fail(cudaErrorInvalidValue, "memory is freed that was not allocated");
  emulated::release(block);
  std::free(found->second.whole);
  table.erase(found);
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return fail(cudaErrorInvalidValue, "a copy from or to nowhere");
  const char *target = static_cast<const char*>(to), *source = static_cast<const char*>(from);
  if (target < source + bytes && source < target + bytes && target != source)
    return fail(cudaErrorInvalidValue, "a copy between places that overlap");
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** block, size_t bytes) {
  if (const cudaError_t failure = called(__func__)) return failure;
  return allocate(on_device, block, bytes);
}
cudaError_t cudaFree(void* block) { return release(on_device, block); }
cudaError_t cudaMallocHost(void** block, size_t bytes) { return allocate(on_host, block, bytes); }
cudaError_t cudaFreeHost(void* block) { return release(on_host, block); }

// Memory of the host that kernels may use, such as a CPU session's.
cudaError_t cudaHostRegister(void* block, size_t bytes, unsigned flags) {
  if (block == nullptr || bytes == 0) return fail(cudaErrorInvalidValue);
  std::lock_guard<std::mutex> guard(lock());
  registered[block] = bytes;
  emulated::allocate(block, bytes, (flags & cudaHostRegisterReadOnly) != 0);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* block) {
  std::lock_guard<std::mutex> guard(lock());
  if (registered.erase(block) == 0)
    return fail(cudaErrorInvalidValue, "memory is unregistered that was not registered");
  emulated::release(block);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (const cudaError_t failure = called(__func__)) return failure;
  finish_all(current_device());
  return copy(to, from, bytes);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (const cudaError_t failure = called(__func__)) return failure;
  if (!is_stream(stream)) return fail(cudaErrorInvalidResourceHandle);
  return copy(to, from, bytes);
}
cudaError_t cudaMemset(void* block, int value, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (block == nullptr) return fail(cudaErrorInvalidValue);
  std::memset(block, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int value, size_t bytes, cudaStream_t stream) {
  return is_stream(stream) ? cudaMemset(block, value, bytes) : fail(cudaErrorInvalidResourceHandle);
}

// All but pinned memory of the host counts as the device's: a CPU session stands in for one on a GPU.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::lock_guard<std::mutex> guard(lock());
  std::memset(attributes, 0, sizeof *attributes);
  const bool host = emulated::host_memory() || on_host.count(pointer) != 0;
  attributes->type = host ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice;
  attributes->device = current_device();
  attributes->devicePointer = host ? nullptr : const_cast<void*>(pointer);
  return cudaSuccess;
}

}  // extern "C"
