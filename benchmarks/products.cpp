// Rates of single matrix products with a bias. Arguments: threads, seconds per figure, then M K N for each product.
// Prints one JSON list: [[hot GFLOP/s, cold GFLOP/s], ...]. Hot: the same weights again and again. Cold: each call has weights
// that have not been read for 128 MB, as a model's have.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gemm.h"
#include "loops.h"
#include "thread_pool.h"

namespace {

using namespace ortisan;
using Clock = std::chrono::steady_clock;

constexpr int64_t kColdBytes = int64_t{128} << 20;

void multiply(Context& c, int64_t M, int64_t K, int64_t N, const float* a, const float* packed, const float* bias,
              float* out) {
  const auto epilogue = [=](int64_t row, int64_t rows, int64_t col, const float* __restrict sums, int64_t width,
                            int64_t n) ORTISAN_INLINE {
    for (int64_t i = 0; i < rows; ++i) {
      float* to = out + (row + i) * N + col;
      const float* offset = bias + col;
      ORTISAN_INDEPENDENT
      ORTISAN_UNROLL(1)
      for (int64_t j = 0; j < n; ++j) to[j] = sums[i * width + j] + offset[j];
    }
  };
  const auto prefetch = [=](int64_t row, int64_t col) ORTISAN_INLINE { __builtin_prefetch(out + row * N + col, 1); };
  gemm_packed<float>(c, M, K, a, K, default_blocking, Product(N, packed, epilogue, prefetch));
}

double rate(ThreadPool& pool, int64_t M, int64_t K, int64_t N, int64_t copies, double enough) {
  Context c(pool.handle());
  const int64_t size = packed_elements<float>(K, N);
  const std::vector<float> a(M * K, 0.5f), weights(size * copies, 0.25f), bias(N, 1.0f);
  std::vector<float> out(M * N);
  const int64_t inner = max_of(1, 20'000'000 / (M * K * N));
  double best = 1e9, spent = 0;
  for (int64_t run = 0; run < 2 || spent < enough; ++run) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < inner; ++i) {
      multiply(c, M, K, N, a.data(), weights.data() + (run * inner + i) % copies * size, bias.data(), out.data());
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    spent += seconds;
    if (run > 0 && seconds / inner < best) best = seconds / inner;
  }
  return 2e-9 * M * K * N / best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 1;
  ThreadPool pool(std::atoi(argv[1]));
  const double enough = std::atof(argv[2]);
  std::printf("[");
  for (int i = 3; i + 2 < argc; i += 3) {
    const int64_t M = std::atoll(argv[i]), K = std::atoll(argv[i + 1]), N = std::atoll(argv[i + 2]);
    const int64_t copies = kColdBytes / (4 * packed_elements<float>(K, N)) + 1;
    std::printf("%s[%.2f, %.2f]", i > 3 ? ", " : "", rate(pool, M, K, N, 1, enough),
                rate(pool, M, K, N, copies, enough));
  }
  std::printf("]\n");
  return 0;
}
