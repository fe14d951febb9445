// The emulator as the runtime sees it. It may be there and wanted, or not: without it, kernels do nothing and their facts are
// unknown.
#pragma once

#include "emulator.h"
#include "runtime.h"

extern "C" {
#pragma weak ortisan_emulator_launch
#pragma weak ortisan_emulator_kernel
#pragma weak ortisan_emulator_variable
#pragma weak ortisan_emulator_allocate
#pragma weak ortisan_emulator_release
#pragma weak ortisan_emulator_error
}

namespace ortisan::cuda::emulated {

// Whether ortisan_cuda_emulate asked for it; a process may have an emulator for something else.
bool is_wanted();
inline bool is_linked() { return is_wanted() && ortisan_emulator_launch != nullptr; }

inline void allocate(const void* block, size_t bytes, bool read_only) {
  if (is_linked()) ortisan_emulator_allocate(block, bytes, read_only);
}
inline void release(const void* block) {
  if (is_linked()) ortisan_emulator_release(block);
}
inline void* variable(const char* name, size_t* bytes) {
  return is_linked() ? ortisan_emulator_variable(name, bytes) : nullptr;
}

// Fills in what only the kernel's code says.
inline void describe(Function& function) {
  OrtisanEmulatorKernel facts;
  if (!is_linked() || ortisan_emulator_kernel(function.name.c_str(), &facts) != 0) return;
  function.static_shared = facts.static_shared;
  function.most_threads = facts.max_threads;
}

// Whether a test wants all memory to be said to be the host's.
bool host_memory();

}  // namespace ortisan::cuda::emulated
