// The products that are timed: those of gemm.h, with the plainest epilogue.
#include "products.h"

#include "gemm.h"

namespace ortisan {
namespace {

template <class T>
void fill(void* data, int64_t count) {
  T* to = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) to[i] = store<T>(compute_t<T>(1));
}

template <class T>
int64_t bytes_of(int64_t K, int64_t N) {
  return packed_elements<T>(K, N) * int64_t(sizeof(T));
}

template <class T>
void run(Parallel parallel, int64_t M, int64_t N, int64_t K, const void* a, const void* packed, void* out,
         const Blocking& blocking) {
  Context c(parallel);
  T* to = static_cast<T*>(out);
  const auto epilogue = [=](int64_t row, int64_t rows, int64_t col, const compute_t<T>* __restrict sums, int64_t width,
                            int64_t n) ORTISAN_INLINE {
    for (int64_t i = 0; i < rows; ++i) {
      T* line = to + (row + i) * N + col;
      for (int64_t j = 0; j < n; ++j) line[j] = store<T>(sums[i * width + j]);
    }
  };
  const auto prefetch = [=](int64_t row, int64_t col) ORTISAN_INLINE { __builtin_prefetch(to + row * N + col, 1); };
  gemm_packed<T>(c, M, K, static_cast<const T*>(a), K, blocking,
                 Product(N, static_cast<const T*>(packed), epilogue, prefetch));
}

template <class T>
Launch launch_of(int64_t M, int64_t N, int64_t K, const Blocking& blocking) {
  return launch<T>(M, K, ceil_quotient(N, panel_width<T>), blocking);
}

template <class T>
constexpr TimedProduct product_of = {sizeof(T), panel_width<T>, bytes_of<T>, fill<T>, run<T>, launch_of<T>};

bool same(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

}  // namespace

const TimedProduct* find_product(const char* type) {
  if (same(type, "float32")) return &product_of<float>;
  if (same(type, "float64")) return &product_of<double>;
  if (same(type, "float16")) return &product_of<half>;
  if (same(type, "bfloat16")) return &product_of<bfloat16>;
  return nullptr;
}

}  // namespace ortisan

#include "end_macros.h"
