// Chooses and launches the kernel of an attention, by sizes that are known when it runs.
#pragma once

#include <cuda_runtime.h>

#include "flash_thin.h"
#include "flash_tiles.h"

namespace ortisan {

constexpr int flash_few_queries = 16;

template <class T>
bool begins_wide(const Rows<T>& rows) {
  constexpr int step = elements_per_load<T>;
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.batch % step == 0 && rows.head % step == 0 &&
         rows.row % step == 0;
}

template <class Kind>
bool is_wide(const FlashCall<typename Kind::T>& call) {
  constexpr int step = elements_per_load<typename Kind::T>;
  return Kind::D % step == 0 && Kind::E % step == 0 && begins_wide(call.q) && begins_wide(call.k.fresh) &&
         begins_wide(call.v.fresh) && (call.past == 0 || (begins_wide(call.k.past) && begins_wide(call.v.past)));
}

template <class Kind, int rows, bool wide>
cudaError_t launch_thin(const FlashCall<typename Kind::T>& call, cudaStream_t stream) {
  const int64_t all = int64_t(call.group) * call.queries;
  const int64_t blocks = (all + rows - 1) / rows * (call.heads / call.group) * call.batch;
  flash_thin<Kind, rows, wide><<<dim3(unsigned(blocks)), thin_warps * 32, 0, stream>>>(call);
  return cudaGetLastError();
}

template <class Kind, bool wide>
cudaError_t launch_tiles(const FlashCall<typename Kind::T>& call, cudaStream_t stream) {
  constexpr int bytes = FlashTiles<Kind>::elements * int(sizeof(typename Kind::T));
  const auto kernel = flash_tiles<Kind, wide>;
  if constexpr (bytes > 48 * 1024) {
    const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (allowed != cudaSuccess) return allowed;
  }
  const int64_t blocks = int64_t(call.queries + flash_rows - 1) / flash_rows * call.heads * call.batch;
  kernel<<<dim3(unsigned(blocks)), flash_threads, bytes, stream>>>(call);
  return cudaGetLastError();
}

template <class Kind, bool wide>
cudaError_t launch_flash(const FlashCall<typename Kind::T>& call, cudaStream_t stream) {
  constexpr int largest = Kind::D > Kind::E ? Kind::D : Kind::E;
  if constexpr (largest <= flash_largest_head) {
    if (call.queries > flash_few_queries) return launch_tiles<Kind, wide>(call, stream);
  }
  if constexpr (largest <= 128) {
    if (call.group * call.queries > 1) return launch_thin<Kind, 4, wide>(call, stream);
  }
  return launch_thin<Kind, 1, wide>(call, stream);
}

template <class Kind>
cudaError_t flash_attention(const FlashCall<typename Kind::T>& call, cudaStream_t stream) {
  if (call.batch == 0 || call.heads == 0 || call.queries == 0) return cudaSuccess;
  constexpr int step = elements_per_load<typename Kind::T>;
  if constexpr (Kind::D % step == 0 && Kind::E % step == 0) {
    if (is_wide<Kind>(call)) return launch_flash<Kind, true>(call, stream);
  }
  return launch_flash<Kind, false>(call, stream);
}

}  // namespace ortisan
