// Limits of this machine: fused multiply-adds and memory reads per second, for each number of threads in argv.
// The first argument is a file of kReadBytes, to be read where it is mapped. Prints one JSON object:
// {"1": {"gflops": ..., "read_4k": ..., "read_2m": ..., "read_mapped": ...}, ...}; GB/s, null where there are no such pages.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
using Vector __attribute__((vector_size(kVectorBytes))) = float;
constexpr int kLanes = kVectorBytes / 4;

constexpr int kFmaRepeats = 8;
constexpr int64_t kFmaRounds = 8'000'000;
constexpr int kChains = 12;  // independent, to cover the latency of two FMA units

constexpr int kReadRepeats = 6;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kReadBytes = size_t{256} << 20;  // far beyond any cache

std::atomic<float> sink{0};

void keep(Vector v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  sink.store(sum, std::memory_order_relaxed);
}

void multiply_add() {
  const Vector zero = {};
  // Volatile, because a compiler that knows the values computes a chain that has come to rest beforehand.
  volatile float factor = 0.999f, addend = 0.001f, seed = 2;
  const Vector a = zero + factor, b = zero + addend;
  Vector c0 = zero + seed, c1 = c0 + 1, c2 = c1 + 1, c3 = c2 + 1, c4 = c3 + 1, c5 = c4 + 1;
  Vector c6 = c5 + 1, c7 = c6 + 1, c8 = c7 + 1, c9 = c8 + 1, c10 = c9 + 1, c11 = c10 + 1;
  for (int64_t i = 0; i < kFmaRounds; ++i) {
    c0 = c0 * a + b, c1 = c1 * a + b, c2 = c2 * a + b, c3 = c3 * a + b, c4 = c4 * a + b, c5 = c5 * a + b;
    c6 = c6 * a + b, c7 = c7 * a + b, c8 = c8 * a + b, c9 = c9 * a + b, c10 = c10 * a + b, c11 = c11 * a + b;
  }
  keep(c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11);
}

void read_all(const char* begin, size_t bytes) {
  const Vector* v = reinterpret_cast<const Vector*>(begin);
  Vector s0 = {}, s1 = {}, s2 = {}, s3 = {};
  for (size_t i = 0, count = bytes / sizeof(Vector); i < count; i += 4) {
    s0 += v[i], s1 += v[i + 1], s2 += v[i + 2], s3 += v[i + 3];
  }
  keep(s0 + s1 + s2 + s3);
}

// Seconds that `threads` threads take to do work(0) ... work(threads - 1), all started at once.
template <class Work>
double seconds_of(int threads, const Work& work) {
  std::atomic<int> waiting{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> helpers;
  for (int index = 1; index < threads; ++index) {
    helpers.emplace_back([&, index] {
      waiting.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) {
      }
      work(index);
    });
  }
  while (waiting.load() != threads - 1) {
  }
  const auto start = std::chrono::steady_clock::now();
  go.store(true, std::memory_order_release);
  work(0);
  for (std::thread& helper : helpers) helper.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Work>
double best_rate(double amount, int repeats, int threads, const Work& work) {
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const double rate = amount / seconds_of(threads, work);
    if (rate > best) best = rate;
  }
  return best / 1e9;
}

double fma_rate(int threads) {
  const double flops = 2.0 * kLanes * kChains * kFmaRounds * threads;
  return best_rate(flops, kFmaRepeats, threads, [](int) { multiply_add(); });
}

double read_rate(const char* buffer, int threads) {
  const size_t share = kReadBytes / threads / 4096 * 4096;
  return best_rate(double(share) * threads, kReadRepeats, threads,
                   [=](int index) { read_all(buffer + share * index, share); });
}

int64_t huge_page_bytes() {
  char line[256];
  long long kilobytes = 0;
  if (FILE* file = std::fopen("/proc/self/smaps_rollup", "r")) {
    while (std::fgets(line, sizeof line, file)) std::sscanf(line, "AnonHugePages: %lld", &kilobytes);
    std::fclose(file);
  }
  return kilobytes << 10;
}

char* allocate(int advice) {
  void* memory = mmap(nullptr, kReadBytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const uintptr_t address = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  char* aligned = reinterpret_cast<char*>(address);
  madvise(aligned, kReadBytes, advice);
  std::memset(aligned, 0, kReadBytes);
  return aligned;
}

const char* map_file(const char* path) {
  const int file = open(path, O_RDONLY);
  if (file < 0) return nullptr;
  const bool whole = lseek(file, 0, SEEK_END) >= static_cast<off_t>(kReadBytes);
  void* memory = whole ? mmap(nullptr, kReadBytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<const char*>(memory);
}

void print_rate(const char* name, const char* buffer, int threads) {
  if (buffer) {
    std::printf(", \"%s\": %.2f", name, read_rate(buffer, threads));
  } else {
    std::printf(", \"%s\": null", name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  const char* mapped = map_file(argv[1]);
  const char* small = allocate(MADV_NOHUGEPAGE);
  const int64_t huge_before = huge_page_bytes();
  const char* large = allocate(MADV_HUGEPAGE);
  if (!mapped || !small || !large) return 1;
  const bool has_huge = huge_page_bytes() - huge_before > static_cast<int64_t>(kReadBytes / 10 * 9);
  std::printf("{");
  for (int i = 2; i < argc; ++i) {
    const int threads = std::atoi(argv[i]);
    if (threads < 1) return 1;
    std::printf("%s\"%d\": {\"gflops\": %.2f", i > 2 ? ", " : "", threads, fma_rate(threads));
    print_rate("read_4k", small, threads);
    print_rate("read_2m", has_huge ? large : nullptr, threads);
    print_rate("read_mapped", mapped, threads);
    std::printf("}");
  }
  std::printf("}\n");
  return 0;
}
