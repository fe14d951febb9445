// The C interface.
#include "emulator.h"

#include <sched.h>

#include <atomic>

#include "program.h"

using namespace ortisan::emulator;

namespace {

std::atomic<int> checks{ORTISAN_EMULATOR_BOUNDS | ORTISAN_EMULATOR_UNINITIALIZED | ORTISAN_EMULATOR_RACES};
std::atomic<int> threads{0};
thread_local std::string error, kernel, shown;

int fail(int code, std::string text) {
  error = std::move(text);
  return code;
}

int cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// What is wrong with a launch, or "".
std::string misfit(const Kernel& kernel, const unsigned grid[3], const unsigned block[3], size_t shared) {
  for (int d = 0; d < 3; ++d)
    if (grid[d] == 0 || block[d] == 0) return "an empty grid or block";
  if (grid[1] > 65535 || grid[2] > 65535 || grid[0] > 0x7fffffff)
    return "a grid of more than 2^31-1 by 65535 by 65535 blocks";
  const uint64_t size = uint64_t{block[0]} * block[1] * block[2];
  if (size > 1024 || block[2] > 64) return "a block of " + std::to_string(size) + " threads";
  if (size > kernel.max_threads)
    return "a block of " + std::to_string(size) + " threads, but at most " + std::to_string(kernel.max_threads) +
           " are declared";
  if (shared > (size_t{1} << 20)) return std::to_string(shared) + " bytes of shared memory";
  return "";
}

OrtisanEmulatorCounters counters_of(const Totals& t) {
  return {t.launches, t.blocks, t.instructions, t.matrix_products, t.loaded, t.stored};
}

}  // namespace

extern "C" {

int ortisan_emulator_load(const char* program) {
  const std::string wrong = load_program(program);
  return wrong.empty() ? ORTISAN_EMULATOR_OK : fail(ORTISAN_EMULATOR_INVALID_VALUE, wrong);
}

void ortisan_emulator_forget() { forget_kernels(); }

int ortisan_emulator_launch(const char* name, const unsigned grid[3], const unsigned block[3], size_t shared,
                            void* const* parameters) {
  const Kernel* kernel = find_kernel(name);
  if (kernel == nullptr) return fail(ORTISAN_EMULATOR_NO_KERNEL, std::string("no program has the kernel ") + name);
  const std::string wrong = misfit(*kernel, grid, block, shared);
  if (!wrong.empty())
    return fail(ORTISAN_EMULATOR_INVALID_CONFIGURATION, short_name(kernel->name) + " can't be launched: " + wrong);
  Launch launch;
  launch.kernel = kernel;
  for (int d = 0; d < 3; ++d) launch.grid[d] = grid[d], launch.block[d] = block[d];
  launch.dynamic_shared = static_cast<uint32_t>(shared);
  const uint32_t align = kernel->dynamic_shared_align;
  launch.shared_bytes = (kernel->static_shared + align - 1) / align * align + launch.dynamic_shared;
  launch.checks = checks;
  launch.parameters.resize(kernel->parameter_bytes + 16);
  for (size_t k = 0; k < kernel->parameters.size(); ++k)
    std::memcpy(launch.parameters.data() + kernel->parameters[k].first, parameters[k], kernel->parameters[k].second);
  add_extent(launch.parameters.data(), launch.parameters.size(), false);  // a kernel may take their addresses
  const int count = threads;
  const std::string failure = run_grid(launch, count != 0 ? count : cpus());
  remove_extent(launch.parameters.data());
  return failure.empty() ? ORTISAN_EMULATOR_OK : fail(ORTISAN_EMULATOR_FAULT, failure);
}

int ortisan_emulator_kernel(const char* name, OrtisanEmulatorKernel* facts) {
  const Kernel* kernel = find_kernel(name);
  if (kernel == nullptr) return 1;
  *facts = {kernel->static_shared, kernel->local_bytes, kernel->parameter_bytes,
            static_cast<int>(kernel->parameters.size()), static_cast<int>(kernel->max_threads)};
  return 0;
}

void* ortisan_emulator_variable(const char* name, size_t* bytes) { return find_variable(name, bytes); }

void ortisan_emulator_allocate(const void* begin, size_t bytes, int read_only) {
  add_extent(begin, bytes, read_only == 0);
}
void ortisan_emulator_release(const void* begin) { remove_extent(begin); }

void ortisan_emulator_check(int which) { checks = which; }
void ortisan_emulator_use_threads(int count) { threads = count; }

void ortisan_emulator_count(OrtisanEmulatorCounters* counters) { *counters = counters_of(counted()); }
int ortisan_emulator_count_kernel(size_t number, const char** name, const char** readable,
                                  OrtisanEmulatorCounters* counters) {
  Totals totals;
  if (!counted(number, &kernel, &totals)) return 1;
  *counters = counters_of(totals);
  shown = short_name(kernel);
  *name = kernel.c_str(), *readable = shown.c_str();
  return 0;
}
void ortisan_emulator_reset_counters(void) { reset_counts(); }

const char* ortisan_emulator_error(void) { return error.c_str(); }

}  // extern "C"
