// Programs that were loaded, and the memory that lives.
#pragma once

#include <memory>
#include <string>

#include "machine.h"

namespace ortisan::emulator {

// Reads a program's text; "" or what is wrong with it.
std::string load_program(const char* text);
void forget_kernels();
const Kernel* find_kernel(const std::string& name);
// The name of a function without types of parameters, and of its template's arguments the first, without scope and arguments:
// gemm::Kernel<Universal>.
std::string short_name(const std::string& kernel);
void* find_variable(const std::string& name, size_t* bytes);

void add_extent(const void* begin, size_t bytes, bool writable);
void remove_extent(const void* begin);

// Runs all blocks; "" or the first failure.
std::string run_grid(Launch& launch, int threads);

struct Totals {
  uint64_t launches = 0, blocks = 0, instructions = 0, matrix_products = 0, loaded = 0, stored = 0;
  void add(const Totals& other);
};
void count(const std::string& kernel, const Totals& done);
Totals counted();
// Of the kernel of this number, in the order of first launches; false when there are not so many.
bool counted(size_t number, std::string* kernel, Totals* totals);
void reset_counts();

}  // namespace ortisan::emulator
