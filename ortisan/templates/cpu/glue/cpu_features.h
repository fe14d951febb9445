// Tells which of the CPU features that the kernels were built for this machine lacks. Built for any CPU, and built of nothing
// but internal functions, so that no code of the kernels' instruction set can be linked in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ortisan {
namespace {

#if defined(__x86_64__)
enum Register : uint8_t { eax = 0, ebx = 1, ecx = 2 };
enum State : uint64_t { none = 0, avx = 0x6, avx512 = 0xE6 };  // bits of XCR0 that the operating system must have set

struct CpuFeature {
  const char* name;
  uint32_t leaf;
  Register where;
  int bit;
  State state;
  uint32_t subleaf = 0;
};

// Names as in /proc/cpuinfo.
constexpr CpuFeature cpu_features[] = {
    {"pni", 1, ecx, 0, none},
    {"ssse3", 1, ecx, 9, none},
    {"sse4_1", 1, ecx, 19, none},
    {"sse4_2", 1, ecx, 20, none},
    {"popcnt", 1, ecx, 23, none},
    {"cx16", 1, ecx, 13, none},
    {"movbe", 1, ecx, 22, none},
    {"fma", 1, ecx, 12, avx},
    {"f16c", 1, ecx, 29, avx},
    {"avx", 1, ecx, 28, avx},
    {"avx2", 7, ebx, 5, avx},
    {"bmi1", 7, ebx, 3, none},
    {"bmi2", 7, ebx, 8, none},
    {"avx512f", 7, ebx, 16, avx512},
    {"avx512dq", 7, ebx, 17, avx512},
    {"avx512cd", 7, ebx, 28, avx512},
    {"avx512bw", 7, ebx, 30, avx512},
    {"avx512vl", 7, ebx, 31, avx512},
    {"avx512_vnni", 7, ecx, 11, avx512},
    {"avx512_bf16", 7, eax, 5, avx512, 1},
    {"lahf_lm", 0x80000001, ecx, 0, none},
    {"abm", 0x80000001, ecx, 5, none},
};

inline uint64_t enabled_state() {
  uint32_t r[4] = {};
  if (!__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) || !(r[ecx] >> 27 & 1)) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

inline bool has_feature(const CpuFeature& feature) {
  uint32_t r[4] = {};
  if (!__get_cpuid_count(feature.leaf, feature.subleaf, &r[0], &r[1], &r[2], &r[3])) return false;
  return (r[feature.where] >> feature.bit & 1) && (enabled_state() & feature.state) == feature.state;
}
#endif

// A feature of no table is one that the build named and this code does not know: it counts as missing.
inline bool has_feature(const char* name, size_t length) {
#if defined(__x86_64__)
  for (const CpuFeature& feature : cpu_features)
    if (std::strlen(feature.name) == length && std::memcmp(feature.name, name, length) == 0)
      return has_feature(feature);
#else
  (void)name, (void)length;
#endif
  return false;
}

// Copies the first feature of a space-separated list that is missing into `missing`; false when all are there.
inline bool find_missing_feature(const char* features, char* missing, size_t size) {
  for (const char* p = features; *p != '\0';) {
    const size_t length = std::strcspn(p, " ");
    if (length > 0 && !has_feature(p, length)) {
      const size_t copied = length < size ? length : size - 1;
      std::memcpy(missing, p, copied);
      missing[copied] = '\0';
      return true;
    }
    p += length;
    if (*p == ' ') ++p;
  }
  return false;
}

}  // namespace
}  // namespace ortisan
