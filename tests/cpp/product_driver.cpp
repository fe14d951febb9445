// The kernels of gemm.h as C functions.
#include "driver.h"
#include "gemm.h"
#include "scalar.h"

using namespace ortisan;
using driver::same;
using driver::TestContext;

template <class T>
int64_t packed_size(int64_t K, int64_t N) {
  return packed_elements<T>(K, N);
}

// out[M, N] = a[M, K] (rows lda apart) * b + bias[N]; b is packed here from its strides. Returns the rows' panels in `packed`.
template <class T, class W = T>
void gemm(int64_t M, int64_t N, int64_t K, const void* a, int64_t lda, const void* b, int64_t stride_k,
          int64_t stride_n, const void* bias, void* packed, void* out, const Blocking& blocking) {
  TestContext c;
  pack_b(c, K, N, static_cast<const W*>(b), stride_k, stride_n, static_cast<W*>(packed));
  const T* offset = static_cast<const T*>(bias);
  T* to = static_cast<T*>(out);
  const auto epilogue = [=](int64_t row, int64_t rows, int64_t col, const compute_t<T>* sums, int64_t width,
                            int64_t n) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        to[(row + i) * N + col + j] = store<T>(fn::add(sums[i * width + j], load(offset[col + j])));
      }
    }
  };
  gemm_packed<T, W>(c, M, K, static_cast<const T*>(a), lda, blocking,
                    Product(N, static_cast<const W*>(packed), epilogue, [](int64_t, int64_t) {}));
}

// out[M, N] = min(max(a[M, K] * b + bias[N], low), high), by tiles that write it themselves or through the sums.
EXPORT void gemm_clamped(int64_t M, int64_t N, int64_t K, const float* a, const float* b, const float* bias, float low,
                         float high, int64_t by_tiles, int64_t depth, float* packed, float* out) {
  TestContext c;
  pack_b(c, K, N, b, N, 1, packed);
  const Blocking blocking = {depth, 40, 100, true};
  const Clamped<float> clamped = {{bias, low, high}, out, N};
  const auto prefetch = [](int64_t, int64_t) {};
  if (by_tiles != 0) return gemm_packed<float>(c, M, K, a, K, blocking, Product(N, packed, clamped, prefetch));
  const auto epilogue = [=](int64_t row, int64_t rows, int64_t col, const float* sums, int64_t width, int64_t n) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        out[(row + i) * N + col + j] = fn::clamp(fn::add(sums[i * width + j], bias[col + j]), low, high);
      }
    }
  };
  gemm_packed<float>(c, M, K, a, K, blocking, Product(N, packed, epilogue, prefetch));
}

template <class F>
int with_type(const char* type, F f) {
  if (same(type, "float32")) return f(float{}), 1;
  if (same(type, "float64")) return f(double{}), 1;
  if (same(type, "float16")) return f(half{}), 1;
  if (same(type, "bfloat16")) return f(bfloat16{}), 1;
  if (same(type, "int32")) return f(int32_t{}), 1;
  if (same(type, "int8")) return f(int8_t{}), 1;
  if (same(type, "uint64")) return f(uint64_t{}), 1;
  return 0;
}

EXPORT int64_t packed_count(const char* type, int64_t K, int64_t N) {
  int64_t count = 0;
  with_type(type, [&](auto t) { count = packed_size<decltype(t)>(K, N); });
  return count;
}

// What Python repeats of these headers: the panels' width, and the limits of blockings.
EXPORT int64_t panel_width_of(const char* type) {
  int64_t width = 0;
  with_type(type, [&](auto t) { width = panel_width<decltype(t)>; });
  return width;
}

EXPORT void blocking_limits(int64_t* out) {
  const Blocking& b = default_blocking;
  const int64_t all[] = {b.depth, b.band, b.work, b.prefetch, detail::largest_band};
  for (const int64_t number : all) *out++ = number;
}

EXPORT void launch_of(const char* type, int64_t M, int64_t N, int64_t K, int64_t depth, int64_t band, int64_t work,
                      int64_t prefetch, int64_t* out) {
  with_type(type, [&](auto t) {
    using T = decltype(t);
    const Launch l = launch<T>(M, K, ceil_quotient(N, panel_width<T>), {depth, band, work, prefetch != 0});
    const int64_t all[] = {l.depth, l.bands, l.groups, l.prefetch};
    for (const int64_t number : all) *out++ = number;
  });
}

EXPORT int gemm_array(const char* type, int64_t M, int64_t N, int64_t K, const void* a, int64_t lda, const void* b,
                      int64_t stride_k, int64_t stride_n, const void* bias, void* packed, void* out, int64_t depth,
                      int64_t band, int64_t work, int64_t prefetch) {
  const Blocking blocking = {depth, band, work, prefetch != 0};
  return with_type(
      type, [&](auto t) { gemm<decltype(t)>(M, N, K, a, lda, b, stride_k, stride_n, bias, packed, out, blocking); });
}

// The same with b of bfloat16 and all others of float.
EXPORT void gemm_widening(int64_t M, int64_t N, int64_t K, const void* a, int64_t lda, const void* b, int64_t stride_k,
                          int64_t stride_n, const void* bias, void* packed, void* out, int64_t depth, int64_t band,
                          int64_t work, int64_t prefetch) {
  const Blocking blocking = {depth, band, work, prefetch != 0};
  gemm<float, bfloat16>(M, N, K, a, lda, b, stride_k, stride_n, bias, packed, out, blocking);
}

EXPORT void bmm_float(int64_t batch, int64_t M, int64_t N, int64_t K, const float* a, const float* b, float* packed,
                      float* out) {
  TestContext c;
  bmm_pack_b(c, batch, K, N, [=](int64_t i) { return b + i * K * N; }, N, 1, packed);
  bmm_packed<float>(
      c, batch, M, N, K, [=](int64_t i) { return a + i * M * K; }, K,
      [=](int64_t i) { return packed + i * packed_elements<float>(K, N); }, default_blocking,
      [=](int64_t i, int64_t row, int64_t rows, int64_t col, const float* sums, int64_t width, int64_t n) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < n; ++j) out[(i * M + row + r) * N + col + j] = sums[r * width + j];
        }
      },
      [](int64_t, int64_t, int64_t) {});
}
