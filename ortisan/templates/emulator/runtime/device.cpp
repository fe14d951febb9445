// Devices, their limits, and errors.
#include <cstdlib>
#include <cstring>
#include <map>

#include "runtime.h"

// The toolkit's macro hides the plain name behind a versioned one; both are here.
#undef cudaGetDeviceProperties

namespace ortisan::cuda {
namespace {

constexpr Limits known[] = {
    {75, 40, 64 << 10, 64 << 10, 1024, 16},    {80, 108, 163 << 10, 164 << 10, 2048, 32},
    {86, 84, 99 << 10, 100 << 10, 1536, 16},   {89, 128, 99 << 10, 100 << 10, 1536, 24},
    {90, 132, 227 << 10, 228 << 10, 2048, 32},
};

thread_local int device = 0;
thread_local cudaError_t error = cudaSuccess;
thread_local cudaError_t explained = cudaSuccess;
thread_local std::string reason, text;

const char* name_of(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorNotSupported: return "operation not supported";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    default: return "another error";
  }
}

void fill(cudaDeviceProp* properties) {
  const Limits& own = limits();
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "emulated");
  properties->major = own.architecture / 10;
  properties->minor = own.architecture % 10;
  properties->multiProcessorCount = own.processors;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = threads_per_block;
  properties->maxThreadsPerMultiProcessor = own.threads_per_processor;
  properties->maxBlocksPerMultiProcessor = own.blocks_per_processor;
  properties->sharedMemPerBlock = plain_shared;
  properties->sharedMemPerBlockOptin = own.shared_per_block;
  properties->sharedMemPerMultiprocessor = own.shared_per_processor;
  properties->reservedSharedMemPerBlock = reserved_shared;
  properties->l2CacheSize = 40 << 20;
  properties->totalGlobalMem = size_t{80} << 30;
}

}  // namespace

// The GPU that is stood in for: that of ORTISAN_EMULATED_ARCHITECTURE, an A100 by default.
const Limits& limits() {
  static const Limits* const chosen = [] {
    const char* wanted = std::getenv("ORTISAN_EMULATED_ARCHITECTURE");
    for (const Limits& each : known)
      if (each.architecture == (wanted == nullptr ? 80 : std::atoi(wanted))) return &each;
    return &known[1];
  }();
  return *chosen;
}

std::mutex& lock() {
  static std::mutex mutex;
  return mutex;
}

cudaError_t fail(cudaError_t code, const std::string& why) {
  error = explained = code, reason = why;
  return code;
}
cudaError_t last_error() { return error; }
void clear_error() { error = cudaSuccess; }
int current_device() { return device; }

}  // namespace ortisan::cuda

using namespace ortisan::cuda;

extern "C" {

cudaError_t cudaGetDevice(int* id) {
  *id = device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int id) {
  if (const cudaError_t failure = called(__func__)) return failure;
  if (id < 0 || id >= devices) return fail(cudaErrorInvalidDevice);
  device = id;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* number) {
  *number = devices;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int id) {
  if (id < 0 || id >= devices) return fail(cudaErrorInvalidDevice);
  fill(properties);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int id) {
  return cudaGetDeviceProperties(properties, id);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int id) {
  if (id < 0 || id >= devices) return fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = threads_per_block; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = plain_shared; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = limits().processors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = limits().architecture / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = limits().architecture % 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(limits().shared_per_processor); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(limits().shared_per_block); break;
    default: return fail(cudaErrorInvalidValue, "device attribute " + std::to_string(attribute) + " is not known");
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t failure = called(__func__)) return failure;
  finish_all(device);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t code = error;
  error = cudaSuccess;
  return code;
}
cudaError_t cudaPeekAtLastError() { return error; }
const char* cudaGetErrorString(cudaError_t code) {
  text = name_of(code);
  if (code == explained && !reason.empty()) text += " (" + reason + ")";
  return text.c_str();
}
const char* cudaGetErrorName(cudaError_t code) { return name_of(code); }

}  // extern "C"
