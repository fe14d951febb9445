// What nvcc's code registers before main, and the attributes of kernels.
#include <cstring>
#include <map>

#include "emulated.h"
#include "runtime.h"

using namespace ortisan::cuda;

namespace {
std::map<const void*, Function> functions;
std::map<const void*, std::string> variables;
}  // namespace

namespace ortisan::cuda {

Function* find_function(const void* stub) {
  const auto found = functions.find(stub);
  return found == functions.end() ? nullptr : &found->second;
}

}  // namespace ortisan::cuda

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaInitModule(void**) {}

void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int threads, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  std::lock_guard<std::mutex> guard(lock());
  Function& function = functions[stub];
  function.name = name;
  if (threads > 0) function.most_threads = threads;
}

void __cudaRegisterVar(void**, char* stub, char*, const char* name, int, size_t, int, int) {
  std::lock_guard<std::mutex> guard(lock());
  variables[stub] = name;
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
  std::lock_guard<std::mutex> guard(lock());
  const auto found = variables.find(symbol);
  if (found == variables.end()) return fail(cudaErrorInvalidSymbol);
  size_t size = 0;
  char* memory = static_cast<char*>(emulated::variable(found->second.c_str(), &size));
  if (memory == nullptr) return cudaSuccess;  // nothing runs that could read it
  if (offset > size || bytes > size - offset) return fail(cudaErrorInvalidValue);
  std::memcpy(memory + offset, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  std::lock_guard<std::mutex> guard(lock());
  Function* function = find_function(stub);
  if (function == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  emulated::describe(*function);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
    return value >= -1 && value <= 100 ? cudaSuccess : fail(cudaErrorInvalidValue);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return fail(cudaErrorInvalidValue);
  if (value < 0 || static_cast<size_t>(value) + function->static_shared > limits().shared_per_block)
    return fail(cudaErrorInvalidValue, function->name + " asks for " + std::to_string(value) +
                                           " bytes of shared memory, and a block can have " +
                                           std::to_string(limits().shared_per_block));
  function->most_dynamic_shared = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  std::lock_guard<std::mutex> guard(lock());
  Function* function = find_function(stub);
  if (function == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  emulated::describe(*function);
  std::memset(attributes, 0, sizeof *attributes);
  attributes->sharedSizeBytes = function->static_shared;
  attributes->maxThreadsPerBlock = function->most_threads;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(function->most_dynamic_shared);
  attributes->ptxVersion = attributes->binaryVersion = limits().architecture;
  return cudaSuccess;
}

}  // extern "C"
