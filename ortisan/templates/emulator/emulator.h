// The C interface of the emulator: what a CUDA runtime over host memory calls instead of a driver.
//
// Device memory is host memory. Kernels find it at the addresses that they are given, and every access is looked up among the
// live allocations: tell the emulator of each (cudaMalloc, tensors of a CPU session) and of its end. All functions may be called
// from any thread. Those that can fail give 0 or a cudaError, and then ortisan_emulator_error has the reason for this thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef ORTISAN_EMULATOR_BUILD
#pragma GCC visibility push(default)
#endif

enum {
  ORTISAN_EMULATOR_OK = 0,
  ORTISAN_EMULATOR_INVALID_VALUE = 1,  // cudaErrorInvalidValue: a program that can't be read
  ORTISAN_EMULATOR_INVALID_CONFIGURATION = 9,  // cudaErrorInvalidConfiguration: grid, block or shared memory
  ORTISAN_EMULATOR_NO_KERNEL = 98,  // cudaErrorInvalidDeviceFunction
  ORTISAN_EMULATOR_FAULT = 719  // cudaErrorLaunchFailure: a check failed while the kernel ran
};

// What ortisan_emulator_check takes: any sum of these. All are on at first.
enum {
  ORTISAN_EMULATOR_BOUNDS = 1,  // accesses outside of live allocations, and of the shared and the local window
  ORTISAN_EMULATOR_UNINITIALIZED =
      2,  // reads of shared memory that was never written, or that a copy is still on its way to
  ORTISAN_EMULATOR_RACES = 4  // shared memory that two threads use, one of them writing, with no barrier between
};

// Counted since the library was loaded, or since ortisan_emulator_reset_counters.
typedef struct {
  uint64_t launches;
  uint64_t blocks;
  uint64_t instructions;  // of warps
  uint64_t matrix_products;  // mma instructions of warps
  uint64_t global_load_bytes;  // by all lanes, cp.async included
  uint64_t global_store_bytes;  // atomics included
} OrtisanEmulatorCounters;

// Adds the kernels and variables of a program, the text that `ortisan.emulator.translate` makes of PTX. A kernel that another
// program brought already has to be the same.
int ortisan_emulator_load(const char* program);

// Takes back the kernels of all programs; none may be running.
void ortisan_emulator_forget();

// Runs a kernel over its whole grid and returns when it has ended. `name` is the mangled one, as __cudaRegisterFunction has it;
// `parameters` has the address of each parameter; `shared` is the dynamic shared memory in bytes.
int ortisan_emulator_launch(const char* name, const unsigned grid[3], const unsigned block[3], size_t shared,
                            void* const* parameters);

// Facts of a kernel for cudaFuncGetAttributes and launch checks; 1 if there is none of that name.
typedef struct {
  size_t static_shared;
  size_t local;
  size_t parameter_bytes;
  int parameters;
  int max_threads;  // .maxntid, or 1024
} OrtisanEmulatorKernel;
int ortisan_emulator_kernel(const char* name, OrtisanEmulatorKernel* facts);

// The memory of a .global or .const variable; NULL if there is none of that name.
void* ortisan_emulator_variable(const char* name, size_t* bytes);

// Tells of live memory. `read_only` memory may not be stored to. Telling of a begin again replaces what was told.
void ortisan_emulator_allocate(const void* begin, size_t bytes, int read_only);
void ortisan_emulator_release(const void* begin);

void ortisan_emulator_check(int checks);
void ortisan_emulator_use_threads(int threads);  // over blocks; 0: one per CPU that this process may use
void ortisan_emulator_count(OrtisanEmulatorCounters* counters);
// The same of one kernel, in the order in which they were first launched: its name, mangled and shortened for people (valid
// until this thread's next call), and its counters. Gives 1 when `number` is too large.
int ortisan_emulator_count_kernel(size_t number, const char** name, const char** readable,
                                  OrtisanEmulatorCounters* counters);
void ortisan_emulator_reset_counters(void);

// The reason of this thread's last failure: kernel, line, block, thread and what was wrong. Valid until its next call.
const char* ortisan_emulator_error(void);

#ifdef ORTISAN_EMULATOR_BUILD
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
