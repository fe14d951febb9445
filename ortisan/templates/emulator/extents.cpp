// The allocations that live.
#include <map>
#include <mutex>
#include <shared_mutex>

#include "program.h"

namespace ortisan::emulator {

namespace {

constexpr int kNested =
    16;  // allocations that may begin between the begin of the one that holds an address, and the address

std::shared_mutex guard;
std::map<uint64_t, Extent> extents;

}  // namespace

void add_extent(const void* begin, size_t bytes, bool writable) {
  const std::unique_lock<std::shared_mutex> lock(guard);
  const auto at = reinterpret_cast<uint64_t>(begin);
  extents[at] = {at, at + bytes, writable};
}

void remove_extent(const void* begin) {
  const std::unique_lock<std::shared_mutex> lock(guard);
  extents.erase(reinterpret_cast<uint64_t>(begin));
}

bool find_extent(uint64_t address, Extent* extent) {
  const std::shared_lock<std::shared_mutex> lock(guard);
  auto found = extents.upper_bound(address);
  for (int k = 0; k < kNested && found != extents.begin(); ++k) {
    --found;
    if (address < found->second.end) {
      *extent = found->second;
      return true;
    }
  }
  return false;
}

std::string nearest_extent(uint64_t address) {
  const std::shared_lock<std::shared_mutex> lock(guard);
  auto after = extents.upper_bound(address);
  const auto before = after == extents.begin() ? extents.end() : std::prev(after);
  const auto say = [](uint64_t bytes, const char* where, const Extent& extent) {
    return std::to_string(bytes) + " bytes " + where + " one of " + std::to_string(extent.end - extent.begin) +
           " bytes";
  };
  if (before != extents.end() && (after == extents.end() || address - before->second.end <= after->first - address))
    return say(address - before->second.end, "behind the end of", before->second);
  if (after != extents.end()) return say(after->first - address, "before the begin of", after->second);
  return "there is none";
}

}  // namespace ortisan::emulator
