// Sweeps the float functions of scalar.h over the bit patterns of float and compares them with the C library's double.
//
//   ulp_sweep STRIDE   prints one line per function: name, largest error in ulp, the argument it occurred at
//
// An infinity, a NaN or a zero of the wrong sign where the reference has another counts as an error of 1e9 ulp.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "scalar.h"

namespace fn = ortisan::fn;

namespace {

double ulp_of(float reference) {
  const float a = std::fmin(std::fabs(reference), 0x1.fffffep127f);
  return a < 0x1p-126f ? 0x1p-149 : std::ldexp(1.0, std::ilogb(a) - 23);
}

double error(float got, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) == std::isnan(got) ? 0.0 : 1e9;
  if (got == rounded) return got == 0.0f && std::signbit(got) != std::signbit(rounded) ? 1e9 : 0.0;
  if (std::isinf(got)) return std::fabs(exact) > 0x1.fffff8p127 ? (0x1p128 - std::fabs(exact)) / 0x1p104 : 1e9;
  if (std::isinf(rounded)) return (std::fabs(exact) - std::fabs(got)) / 0x1p104;
  return std::fabs(got - exact) / ulp_of(rounded);
}

template <class Function, class Reference>
void sweep(const char* name, uint32_t stride, float low, float high, Function function, Reference reference) {
  constexpr int block = 256;
  float x[block], y[block];
  double worst = 0.0;
  float at = 0.0f;
  constexpr float specials[] = {-0.0f,           INFINITY,         -INFINITY, NAN,        -1.0f, 1.0f, 0x1p-126f,
                                0x1.fffffep127f, -0x1.fffffep127f, 0x1p-149f, -0x1p-149f, 0.5f,  -0.5f};
  uint64_t bits = 0;
  while (bits <= 0xffffffffu) {
    int n = 0;
    if (bits == 0) {
      for (const float special : specials) {
        x[n] = special;
        if (!(special < low || special > high)) ++n;
      }
    }
    for (; n < block && bits <= 0xffffffffu; bits += stride) {
      const uint32_t pattern = static_cast<uint32_t>(bits);
      std::memcpy(&x[n], &pattern, 4);
      if (!(x[n] < low || x[n] > high)) ++n;
    }
    for (int i = 0; i < n; ++i) y[i] = function(x[i]);
    for (int i = 0; i < n; ++i) {
      const double e = error(y[i], reference(static_cast<double>(x[i])));
      if (e > worst) worst = e, at = x[i];
    }
  }
  std::printf("%s %.3f %.9g\n", name, worst, at);
}

}  // namespace

#define SWEEP(name, reference) \
  sweep(#name, stride, -INFINITY, INFINITY, [](float x) { return fn::name(x); }, [](double x) { return reference; })

// As loops call a function that has a version for common arguments.
#define SWEEP_COMMON(name, reference)                                                                 \
  sweep(                                                                                              \
      "common_" #name, stride, -INFINITY, INFINITY,                                                   \
      [](float x) { return fn::common::leaves_##name(x) != 0u ? fn::name(x) : fn::common::name(x); }, \
      [](double x) { return reference; })

int main(int argc, char** argv) {
  const uint32_t stride = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 4099u;
  SWEEP(exp, std::exp(x));
  SWEEP(expm1, std::expm1(x));
  SWEEP(log, std::log(x));
  SWEEP(log1p, std::log1p(x));
  SWEEP(sqrt, std::sqrt(x));
  SWEEP(rsqrt, 1.0 / std::sqrt(x));
  SWEEP(sin, std::sin(x));
  SWEEP(cos, std::cos(x));
  SWEEP(tan, std::tan(x));
  SWEEP_COMMON(log, std::log(x));
  SWEEP_COMMON(sin, std::sin(x));
  SWEEP_COMMON(cos, std::cos(x));
  SWEEP_COMMON(tan, std::tan(x));
  SWEEP(asin, std::asin(x));
  SWEEP(acos, std::acos(x));
  SWEEP(atan, std::atan(x));
  SWEEP(sinh, std::sinh(x));
  SWEEP(cosh, std::cosh(x));
  SWEEP(tanh, std::tanh(x));
  SWEEP(asinh, std::asinh(x));
  SWEEP(acosh, std::acosh(x));
  SWEEP(atanh, std::atanh(x));
  SWEEP(sigmoid, x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)));
  SWEEP(erf, std::erf(x));
  SWEEP(softplus, x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
  constexpr float powers[] = {-3.0f, -0.5f, 0.0f, 0.3333f, 1.0f, 2.0f, 2.5f, 7.0f, 100.25f};
  for (const float p : powers) {
    sweep(
        "pow", stride * 7, -INFINITY, INFINITY, [p](float x) { return fn::pow(x, p); },
        [p](double x) { return std::pow(x, static_cast<double>(p)); });
    sweep(
        "pow", stride * 7, -INFINITY, INFINITY, [p](float x) { return fn::pow(p, x); },
        [p](double x) { return std::pow(static_cast<double>(p), x); });
  }
  const auto gelu = [](double x) { return x * (0.5 * std::erfc(-x * 0.70710678118654752440)); };
  sweep("gelu_positive", stride, 0.0f, INFINITY, [](float x) { return fn::gelu(x); }, gelu);
  sweep("gelu_negative", stride, -5.0f, -0.0f, [](float x) { return fn::gelu(x); }, gelu);
  const auto fastgelu = [](double x) {
    return x / (1.0 + std::exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)));
  };
  sweep("fastgelu_positive", stride, 0.0f, INFINITY, [](float x) { return fn::fastgelu(x); }, fastgelu);
  sweep("fastgelu_negative", stride, -5.0f, -0.0f, [](float x) { return fn::fastgelu(x); }, fastgelu);
  const auto silu = [](double x) { return x / (1.0 + std::exp(-x)); };
  sweep("silu", stride, -80.0f, INFINITY, [](float x) { return fn::silu(x); }, silu);
  const auto mish = [](double x) { return x * std::tanh(std::log1p(std::exp(x))); };
  sweep("mish", stride, -80.0f, INFINITY, [](float x) { return fn::mish(x); }, mish);
  return 0;
}
