// A CUDA runtime over host memory: what the parts of it share. It checks what a driver checks, so a call or a launch that a GPU
// would refuse is refused here as well. Copies are real; kernels run in the emulator where one is linked, else they do nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <string>

namespace ortisan::cuda {

// What differs between GPUs, in bytes per block or per multiprocessor.
struct Limits {
  int architecture;
  int processors;
  size_t shared_per_block;  // after cudaFuncSetAttribute
  size_t shared_per_processor;
  int threads_per_processor;
  int blocks_per_processor;
};
const Limits& limits();
constexpr size_t plain_shared = 48 << 10;  // without cudaFuncSetAttribute
constexpr size_t reserved_shared = 1 << 10;  // of each block, by the driver
constexpr int threads_per_block = 1024;
constexpr int devices = 2;

// Guards all tables.
std::mutex& lock();

// Notes a call; what a test asked to fail fails.
cudaError_t called(const char* function);
// Gives the error back after making it this thread's last one, with a reason that cudaGetErrorString appends.
cudaError_t fail(cudaError_t error, const std::string& reason = "");
cudaError_t last_error();
void clear_error();
int current_device();

bool is_stream(cudaStream_t stream);
bool is_capturing(cudaStream_t stream);
void finish_all(int device);

// A kernel as a source registered it: each host stub has a limit of its own.
struct Function {
  std::string name;
  size_t static_shared = 0;
  size_t most_dynamic_shared = plain_shared;
  int most_threads = threads_per_block;
};
// Null when no source registered this stub. Needs the lock.
Function* find_function(const void* stub);

struct Launch {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
cudaError_t launch(const void* stub, const Launch& launch, void** arguments);

}  // namespace ortisan::cuda
