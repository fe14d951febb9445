// From a product of a query and a key to the softmax's sum: scale, cap, mask, exponential.
#pragma once

#include "flash_call.cuh"

namespace ortisan {

constexpr float flash_log2e = 1.4426950408889634f;

__device__ inline float minus_infinity() { return __int_as_float(0xff800000); }

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

__device__ inline float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(x - top), 0 for -inf even where nothing but -inf was seen; NaN and +inf give NaN.
__device__ inline float flash_weight(float x, float top) {
  return exp2_approximate((x - (top == minus_infinity() ? 0.0f : top)) * flash_log2e);
}

// The keys that the queries up to `query` see, none below 0.
template <class Kind>
__device__ int visible_keys(const FlashCall<typename Kind::T>& call, int query) {
  if (Kind::causal == Causal::none) return call.keys;
  const int ahead = Kind::causal == Causal::lower_right ? call.keys - call.queries : 0;
  return max(0, min(call.keys, query + 1 + ahead));
}

// A sum with a mask in the type that it was written for: there, the lowest finite numbers swallow every logit.
template <class T>
__device__ float masked_sum(float logit, float mask) {
  const float sum = logit + mask;
  return sizeof(T) == 4 || sum > -1024.0f ? sum : to_float(from_float<T>(sum));
}

// The logit of a key that is there; the caller hides those that come after the query.
template <class Kind>
__device__ float flash_logit(const FlashCall<typename Kind::T>& call, float product, int64_t mask_at) {
  using T = typename Kind::T;
  float x = product * call.scale;
  if (call.softcap > 0.0f) x = call.softcap * tanhf(x / call.softcap);
  if constexpr (Kind::mask == Mask::additive) {
    x = masked_sum<T>(x, to_float(static_cast<const T*>(call.mask.data)[mask_at]));
  } else if constexpr (Kind::mask == Mask::boolean) {
    if (!static_cast<const uint8_t*>(call.mask.data)[mask_at]) x = call.hidden;
  }
  return x;
}

// What a row's sums of weighted values are multiplied by.
template <class Kind>
__device__ float flash_share(const FlashCall<typename Kind::T>& call, float total) {
  if (call.keys == 0 || (Kind::zero_empty && total == 0.0f)) return 0.0f;
  return total == 0.0f ? __int_as_float(0x7fffffff) : 1.0f / total;
}

template <class Kind>
__device__ float flash_result(float sum, float share) {
  if (Kind::zero_nan && share != share) return 0.0f;
  return share == 0.0f ? 0.0f : sum * share;
}

}  // namespace ortisan
