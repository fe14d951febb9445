// A stand-in for the CUDA runtime, for tests on machines without a GPU: device memory is host memory, copies are done at once,
// kernels do nothing but are counted and noted, streams and events are always finished. Functions named stand_in_* are for the
// tests.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

// The toolkit's macro hides the plain name of some functions behind a versioned one; both are here.
#undef cudaGetDeviceProperties

namespace {

std::mutex lock;
std::map<std::string, int64_t> calls;
std::map<const void*, std::string> kernels;
std::string failing;
int64_t failing_after = 0;
std::atomic<bool> host_memory{false};

struct Launch {
  std::string kernel;
  uint64_t arguments[4];
};
Launch last_launches[64];
int64_t launch_count = 0;

thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int launches_on_other_devices = 0;

// Counts a call, and tells whether it is the one that is to fail.
cudaError_t count(const char* name) {
  std::lock_guard<std::mutex> guard(lock);
  ++calls[name];
  if (failing == name && failing_after-- == 0) return last_error = cudaErrorMemoryAllocation;
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local Configuration configuration;

cudaError_t note_launch(const void* function, void** arguments) {
  if (const cudaError_t error = count("launch")) return error;
  if (device != 0) ++launches_on_other_devices;
  std::lock_guard<std::mutex> guard(lock);
  Launch& launch = last_launches[launch_count++ % 64];
  launch.kernel = kernels.count(function) ? kernels[function] : "";
  // All kernels that tests look at begin with four pointers or as many words.
  for (int i = 0; i < 4 && launch.kernel.find("fused_elementwise") != std::string::npos; ++i)
    std::memcpy(&launch.arguments[i], arguments[i < 3 ? i : 2], 8);
  return cudaSuccess;
}

void fill(cudaDeviceProp* properties) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "stand-in");
  properties->major = 8;
  properties->multiProcessorCount = 108;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = 166912;
  properties->l2CacheSize = 40 << 20;
  properties->totalGlobalMem = size_t{80} << 30;
}

}  // namespace

#define COUNTED(name) \
  if (const cudaError_t error = count(#name)) return error

extern "C" {

int64_t stand_in_calls(const char* name) {
  std::lock_guard<std::mutex> guard(lock);
  return calls[name];
}
void stand_in_fail(const char* name, int64_t after) {
  std::lock_guard<std::mutex> guard(lock);
  failing = name, failing_after = after;
}
void stand_in_host_memory(int on) { host_memory = on != 0; }
int stand_in_device() { return device; }
void stand_in_use_device(int id) { device = id; }
int stand_in_launches_on_other_devices() { return launches_on_other_devices; }
// The kernel and the first arguments of a launch, counted from the last.
int stand_in_launch(int64_t ago, char* name, size_t size, uint64_t* arguments) {
  std::lock_guard<std::mutex> guard(lock);
  if (ago >= launch_count || ago >= 64) return 0;
  const Launch& launch = last_launches[(launch_count - 1 - ago) % 64];
  std::strncpy(name, launch.kernel.c_str(), size - 1);
  name[size - 1] = '\0';
  std::memcpy(arguments, launch.arguments, sizeof launch.arguments);
  return 1;
}

// What nvcc's code calls before main and at launches.
void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaInitModule(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  std::lock_guard<std::mutex> guard(lock);
  kernels[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration.grid, *block = configuration.block, *shared = configuration.shared;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, size_t, cudaStream_t) {
  return note_launch(kernel, arguments);
}
cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** arguments, size_t, cudaStream_t) {
  return note_launch(function, arguments);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function, void** arguments) {
  return note_launch(function, arguments);
}

cudaError_t cudaGetDevice(int* id) {
  *id = device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int id) {
  COUNTED(cudaSetDevice);
  device = id;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* number) {
  *number = 2;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  fill(properties);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int) {
  fill(properties);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 108 : 166912;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  COUNTED(cudaDeviceSynchronize);
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

cudaError_t cudaMalloc(void** block, size_t bytes) {
  COUNTED(cudaMalloc);
  *block = std::malloc(bytes == 0 ? 1 : bytes);
  return *block == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* block) {
  std::free(block);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** block, size_t bytes) { return cudaMalloc(block, bytes); }
cudaError_t cudaFreeHost(void* block) { return cudaFree(block); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  COUNTED(cudaMemcpy);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  COUNTED(cudaMemcpyAsync);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* block, int value, size_t bytes) {
  std::memset(block, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(block, value, bytes);
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->type = host_memory ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice;
  attributes->devicePointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = reinterpret_cast<cudaStream_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::free(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  COUNTED(cudaStreamSynchronize);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaErrorNotSupported; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) { return cudaErrorNotSupported; }
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  COUNTED(cudaEventCreate);
  *event = reinterpret_cast<cudaEvent_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  COUNTED(cudaEventRecord);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  COUNTED(cudaEventSynchronize);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "no error";
}
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }

}  // extern "C"
