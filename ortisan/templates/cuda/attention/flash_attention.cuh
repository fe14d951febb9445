// Chooses and launches the kernel of an attention, by sizes that are known when it runs. What fails is CUDA's last error.
#pragma once

#include "flash_thin.cuh"
#include "flash_tiles.cuh"
#include "launch.cuh"

namespace ortisan {

constexpr int flash_few_queries = 16;

// Of shared memory, what a block can have on every GPU since 8.0, and for 16-bit types on 7.5.
template <class Kind>
constexpr int flash_most_bytes = (FlashTiles<Kind>::is_float ? 99 : 64) * 1024;

// Bytes of an element of the mask.
template <class Kind>
constexpr int64_t mask_size = Kind::mask == Mask::boolean ? 1 : sizeof(typename Kind::T);

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
void launch_thin(const FlashCall<typename Kind::T>& call, cudaStream_t stream) {
  const int64_t all = int64_t(call.group) * call.queries;
  const int64_t blocks = (all + rows - 1) / rows * (call.heads / call.group) * call.batch;
  flash_thin<Kind, rows, wide><<<dim3(unsigned(blocks)), thin_warps * 32, 0, stream>>>(call);
}

template <class Kind, bool wide>
void launch_tiles(const FlashCall<typename Kind::T>& call, cudaStream_t stream) {
  using Tiles = FlashTiles<Kind>;
  const auto kernel = flash_tiles<Kind, wide>;
  if constexpr (Tiles::bytes > 48 * 1024) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::bytes);
  }
  const int64_t of_head = (int64_t(call.queries) + Tiles::rows - 1) / Tiles::rows * Tiles::pieces;
  kernel<<<dim3(unsigned(of_head * call.heads * call.batch)), Tiles::threads, Tiles::bytes, stream>>>(call);
}

template <class Kind, bool wide>
void launch_flash(const FlashCall<typename Kind::T>& call, cudaStream_t stream) {
  if constexpr (FlashTiles<Kind>::bytes <= flash_most_bytes<Kind>) {
    if (call.queries > flash_few_queries) return launch_tiles<Kind, wide>(call, stream);
  }
  if constexpr (Kind::D <= 128 && Kind::E <= 128) {
    if (call.group * call.queries > 1) return launch_thin<Kind, 4, wide>(call, stream);
  }
  launch_thin<Kind, 1, wide>(call, stream);
}

// The numbers of a call, one after the other.
struct FlashNumbers {
  void* const* tensors;
  const int64_t* next;

  int64_t take() { return *next++; }

  template <class T>
  Rows<T> rows() {
    const int64_t source = take(), offset = take(), batch = take(), head = take(), row = take();
    return {static_cast<T*>(tensors[source]) + offset, batch, head, row};
  }
};

template <class Kind>
FlashCall<typename Kind::T> read_call(FlashNumbers numbers) {
  using T = typename Kind::T;
  FlashCall<T> call;
  call.batch = int32_t(numbers.take());
  call.heads = int32_t(numbers.take());
  call.queries = int32_t(numbers.take());
  call.group = call.heads / int32_t(numbers.take());
  call.past = int32_t(numbers.take());
  call.keys = call.past + int32_t(numbers.take());
  call.scale = as_float(numbers.take());
  call.softcap = as_float(numbers.take());
  call.hidden = as_float(numbers.take());
  call.q = numbers.rows<const T>();
  for (KeyRows<T>* rows : {&call.k, &call.v}) {
    rows->past = numbers.rows<const T>();
    rows->fresh = numbers.rows<const T>();
  }
  const int64_t source = numbers.take(), offset = numbers.take();
  call.mask = {static_cast<const char*>(numbers.tensors[source]) + offset * mask_size<Kind>};
  for (int64_t* stride : {&call.mask.batch, &call.mask.head, &call.mask.row, &call.mask.key}) *stride = numbers.take();
  call.y = numbers.rows<T>();
  return call;
}

// numbers: batch, heads, queries, heads of keys, past and new keys; scale, softcap and hidden logit as bits; then for q, past
// and new k, past and new v, the mask and y: which tensor, where it begins, and its strides.
template <class Kind>
void flash_attention(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const auto call = read_call<Kind>({tensors, numbers});
  if (call.batch == 0 || call.heads == 0 || call.queries == 0) return;
  constexpr int step = elements_per_load<typename Kind::T>;
  if constexpr (Kind::D % step == 0 && Kind::E % step == 0) {
    if (is_wide<Kind>(call)) return launch_flash<Kind, true>(call, stream);
  }
  launch_flash<Kind, false>(call, stream);
}

}  // namespace ortisan
