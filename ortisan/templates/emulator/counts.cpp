// What kernels did, together and each for itself.
#include <mutex>
#include <vector>

#include "program.h"

namespace ortisan::emulator {

namespace {

std::mutex guard;
Totals all;
std::vector<std::pair<std::string, Totals>> of_kernels;  // in the order in which they were first launched

}  // namespace

void Totals::add(const Totals& other) {
  launches += other.launches, blocks += other.blocks, instructions += other.instructions;
  matrix_products += other.matrix_products, loaded += other.loaded, stored += other.stored;
}

void count(const std::string& kernel, const Totals& done) {
  const std::lock_guard<std::mutex> lock(guard);
  all.add(done);
  for (auto& [name, totals] : of_kernels)
    if (name == kernel) return totals.add(done);
  of_kernels.emplace_back(kernel, done);
}

Totals counted() {
  const std::lock_guard<std::mutex> lock(guard);
  return all;
}

bool counted(size_t number, std::string* kernel, Totals* totals) {
  const std::lock_guard<std::mutex> lock(guard);
  if (number >= of_kernels.size()) return false;
  *kernel = of_kernels[number].first, *totals = of_kernels[number].second;
  return true;
}

void reset_counts() {
  const std::lock_guard<std::mutex> lock(guard);
  all = Totals();
  of_kernels.clear();
}

}  // namespace ortisan::emulator
