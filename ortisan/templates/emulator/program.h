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
void* find_variable(const std::string& name, size_t* bytes);

void add_extent(const void* begin, size_t bytes, bool writable);
void remove_extent(const void* begin);

// Runs all blocks; "" or the first failure.
std::string run_grid(Launch& launch, int threads);
struct Totals {
  uint64_t launches, blocks, instructions, matrix_products, loaded, stored;
};
Totals take_totals(bool reset);

}  // namespace ortisan::emulator
