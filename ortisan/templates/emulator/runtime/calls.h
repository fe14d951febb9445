// What was called and launched, for whoever watches: tests, progress, counts of launches.
#pragma once

#include "runtime.h"

namespace ortisan::cuda {

void note_launch(const Function& function, const Launch& launch, void** arguments);
void note_refusal(const std::string& what);

}  // namespace ortisan::cuda

extern "C" {

// How often a function was called; "launch" counts kernels.
int64_t ortisan_cuda_calls(const char* function);
// From now on the call number `after` (from 0) of a function fails once, for lack of memory. "" ends it.
void ortisan_cuda_fail(const char* function, int64_t after);
// From now on kernels are executed, if the process has an emulator.
void ortisan_cuda_emulate();
// Is told the name of each kernel before it runs; null ends it.
void ortisan_cuda_watch(void (*watch)(const char* kernel));
// A launch counted back from the last: its kernel, its first `words` arguments as words of 8 bytes where the kernel has so many,
// and grid, block and shared memory as seven numbers. Gives 0 when there is none.
int ortisan_cuda_launch(int64_t ago, char* kernel, size_t size, uint64_t* arguments, int words, uint64_t* sizes);
// The last launch that was refused or failed, and why; "" when there is none.
void ortisan_cuda_refusal(char* text, size_t size);
int64_t ortisan_cuda_refusals();
// Says that all memory is the host's, as long as it is on.
void ortisan_cuda_host_memory(int on);
void ortisan_cuda_use_device(int id);
// Kernels that this thread launched while another device than 0 was current.
int ortisan_cuda_launches_on_other_devices();
}
