// What this machine offers in 2 MB pages, the rule by which weights = auto decides to use them, and blocks of such memory.
// Elsewhere than on Linux there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ortisan {

constexpr size_t huge_page = size_t{2} << 20;
constexpr uint64_t no_limit = UINT64_MAX;

struct Machine {
  bool huge_pages;  // anonymous memory gets 2 MB pages when it asks for them
  uint64_t free_bytes;  // that this process can still take
};

// The rule of weights = auto. A copy on 2 MB pages is read 20 to 40 % faster than a file mapped in 4 KB pages where a product has
// few rows (`thin`), and little faster elsewhere or where the system maps files with large pages. It costs private memory, so there must be plenty: four times the copy. Below one page
// there is nothing to gain.
inline bool copy_pays(bool thin, size_t bytes, const Machine& machine) {
  return thin && machine.huge_pages && bytes >= huge_page && machine.free_bytes / 4 >= bytes;
}

// The start of a small file as text, or an empty text when it can't be read.
inline void read_text(const char* path, char* text, size_t size) {
  size_t length = 0;
  if (std::FILE* file = std::fopen(path, "re")) {
    length = std::fread(text, 1, size - 1, file);
    std::fclose(file);
  }
  text[length] = '\0';
}

// The number behind `key`, or at the start of the file when that is empty; no_limit where there is none.
inline uint64_t read_number(const char* path, const char* key = "") {
  char text[4096];
  read_text(path, text, sizeof text);
  const char* at = std::strstr(text, key);
  if (at == nullptr) return no_limit;
  char* end = nullptr;
  const unsigned long long number = std::strtoull(at + std::strlen(key), &end, 10);
  return end == at + std::strlen(key) ? no_limit : number;
}

// What a container's limit leaves. Its page cache counts as used, so a container that is nearly full of it keeps weights mapped.
inline uint64_t left_of(uint64_t limit, uint64_t used) {
  if (limit == no_limit || used == no_limit) return no_limit;
  return limit > used ? limit - used : 0;
}

inline Machine this_machine() {
#if defined(__linux__)
  char modes[64];
  read_text("/sys/kernel/mm/transparent_hugepage/enabled", modes, sizeof modes);
  const bool offered = std::strstr(modes, "[always]") != nullptr || std::strstr(modes, "[madvise]") != nullptr;
  const uint64_t kilobytes = read_number("/proc/meminfo", "MemAvailable:");
  const uint64_t limits[] = {
      kilobytes == no_limit ? 0 : kilobytes * 1024,
      left_of(read_number("/sys/fs/cgroup/memory.max"), read_number("/sys/fs/cgroup/memory.current")),
      left_of(read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
              read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
  };
  uint64_t free_bytes = no_limit;
  for (const uint64_t limit : limits) free_bytes = limit < free_bytes ? limit : free_bytes;
  return {offered, free_bytes};
#else
  return {false, 0};
#endif
}

constexpr size_t whole_pages(size_t bytes) { return (bytes + huge_page - 1) & ~(huge_page - 1); }

// Memory on 2 MB boundaries, as much as whole_pages says, that asks for 2 MB pages; null when there is none.
inline char* take_pages(size_t bytes) {
#if defined(__linux__)
  const size_t size = whole_pages(bytes);
  void* taken = mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (taken == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(taken);
  const size_t before = (huge_page - reinterpret_cast<uintptr_t>(start) % huge_page) % huge_page;
  if (before > 0) munmap(start, before);
  munmap(start + before + size, huge_page - before);
  if (madvise(start + before, size, MADV_HUGEPAGE) == 0) return start + before;
  munmap(start + before, size);
#else
  (void)bytes;
#endif
  return nullptr;
}

inline void give_pages_back(char* start, size_t bytes) {
#if defined(__linux__)
  munmap(start, whole_pages(bytes));
#else
  (void)start, (void)bytes;
#endif
}

}  // namespace ortisan
