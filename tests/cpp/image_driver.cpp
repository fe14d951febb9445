// The kernels over images as C functions, in float.
#include "block.h"
#include "conv.h"
#include "depthwise.h"
#include "dot.h"
#include "driver.h"
#include "pool.h"
#include "resize.h"
#include "winograd.h"

using namespace ortisan;
using driver::same;
using driver::TestContext;

namespace {

ConvShape shape_of(const int64_t* n) {
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15]};
}

}  // namespace

// out = the convolution of x with packed filters, by the kernel of this name. `workspace` is for Winograd's, `wave` bands at a time.
EXPORT int convolve(const char* kernel, const int64_t* sizes, const void* x, const void* w, int64_t band, int64_t work,
                    int64_t wave, void* workspace, void* out) {
  TestContext c;
  const ConvShape s = shape_of(sizes);
  float* to = static_cast<float*>(out);
  const auto epilogue = [=](int64_t row, int64_t rows, int64_t col, const float* sums, int64_t width, int64_t n) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n; ++j) to[(row + i) * s.O + col + j] = sums[i * width + j];
    }
  };
  const auto prefetch = [=](int64_t row, int64_t col) { __builtin_prefetch(to + row * s.O + col, 1); };
  const detail::ConvLambdas<decltype(epilogue), decltype(prefetch)> lambdas = {epilogue, prefetch};
  const ConvCall<float> call = {s,
                                static_cast<const float*>(x),
                                static_cast<const float*>(w),
                                {64, band, work, true},
                                conv_output<float, 32>(lambdas)};
  if (same(kernel, "conv2d")) return conv2d(c, call), 1;
  if (same(kernel, "depthwise2d")) return depthwise2d(c, call), 1;
  if (same(kernel, "dot2d")) return dot2d(c, call), 1;
  if (same(kernel, "winograd2d")) return winograd2d(c, call, wave, static_cast<float*>(workspace)), 1;
  return 0;
}

// The same with min(max(sum + bias, 0), 6) as its epilogue, which the kernel makes by itself or is called for.
EXPORT int convolve_clamped(const char* kernel, const int64_t* sizes, const void* x, const void* w, const void* bias,
                            int64_t by_kernel, void* out) {
  TestContext c;
  const ConvShape s = shape_of(sizes);
  const Clamp<float> clamp = {static_cast<const float*>(bias), 0.0f, 6.0f};
  const Clamped<float> epilogue = {clamp, static_cast<float*>(out), s.O};
  const auto prefetch = [](int64_t, int64_t) {};
  const detail::ConvLambdas<decltype(epilogue), decltype(prefetch)> lambdas = {epilogue, prefetch};
  const ConvOutput<float> output =
      by_kernel != 0 ? conv_output<float, 32>(lambdas, clamp, epilogue.out) : conv_output<float, 32>(lambdas);
  const ConvCall<float> call = {
      s, static_cast<const float*>(x), static_cast<const float*>(w), {64, 40, 100, true}, output};
  if (same(kernel, "conv2d")) return conv2d(c, call), 1;
  if (same(kernel, "depthwise2d")) return depthwise2d(c, call), 1;
  return 0;
}

// out = f(conv(f(x * expanded)) * projected), f(sum) = min(max(sum + bias, 0), 6); a `depth` or `filters` of 0 leaves a product out.
EXPORT int block(const int64_t* sizes, int64_t depth, int64_t filters, int64_t by_kernel, const void* x,
                 const void* expanded, const void* taps, const void* projected, const void* bias, void* out) {
  TestContext c;
  const ConvShape s = shape_of(sizes);
  const Clamp<float> clamp = {static_cast<const float*>(bias), 0.0f, 6.0f}, none = {};
  const Clamp<float>& own = by_kernel != 0 ? clamp : none;
  const auto stage = [=](float* to, int64_t ld, int64_t rows, int64_t col, const float* sums, int64_t width,
                         int64_t n) { Clamped<float>{clamp.from(col), to, ld}(0, rows, 0, sums, width, n); };
  const Clamped<float> epilogue = {clamp, static_cast<float*>(out), filters > 0 ? filters : s.C};
  const auto prefetch = [](int64_t, int64_t) {};
  const detail::ConvLambdas<decltype(epilogue), decltype(prefetch)> lambdas = {epilogue, prefetch};
  const Expansion<float> expansion = {depth, static_cast<const float*>(expanded), stage_of<float, 32>(stage, own)};
  const Projection<float> projection = {filters, static_cast<const float*>(projected), stage_of<float, 32>(stage, own)};
  const ConvOutput<float> output =
      by_kernel != 0 ? conv_output<float, 32>(lambdas, clamp, epilogue.out) : conv_output<float, 32>(lambdas);
  depthwise_block<float>(c, {s, static_cast<const float*>(x), static_cast<const float*>(taps),
                             depth > 0 ? &expansion : nullptr, filters > 0 ? &projection : nullptr, output});
  return 1;
}

EXPORT int pool(const char* kernel, const int64_t* sizes, int64_t bottom, int64_t right, int64_t counts, const void* x,
                void* out) {
  TestContext c;
  const ConvShape s = shape_of(sizes);
  if (same(kernel, "max")) return max_pool2d(c, s, static_cast<const float*>(x), static_cast<float*>(out)), 1;
  if (same(kernel, "mean")) {
    return mean_pool2d(c, s, bottom, right, counts != 0, static_cast<const float*>(x), static_cast<float*>(out)), 1;
  }
  return 0;
}

EXPORT int resize(const char* mode, const int64_t* n, const void* x, void* out) {
  TestContext c;
  const ResizeShape s = {n[0], n[3], {n[1], n[4], 0.0f, 0.0f, 1.0f}, {n[2], n[5], 0.0f, 0.0f, 1.0f}};
  const Resizing<float> centers = {coordinates::half_pixel, false, 0.0f};
  const Resizing<float> corners = {coordinates::asymmetric, false, 0.0f};
  const float* from = static_cast<const float*>(x);
  float* to = static_cast<float*>(out);
  if (same(mode, "linear")) return resize2d_linear(c, s, centers, from, to), 1;
  if (same(mode, "cubic")) return resize2d_cubic(c, s, centers, -0.75f, true, from, to), 1;
  if (!same(mode, "nearest")) return 0;
  return resize2d_nearest(c, s, corners, roundings::floor, from, to), 1;
}
