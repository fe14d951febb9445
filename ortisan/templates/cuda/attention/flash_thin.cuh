// Attention for few queries, as in decoding: the time goes into reading keys and values, so both are read once, where
// they are, for up to `rows` queries of the heads that share them.
//
//   8 lanes have a key: each its pieces of the row, 16 bytes where that goes. A block has 16 such slots, and slot i the
//   keys i, i + 16, ... Every slot keeps a maximum, a sum and a product of its own; the slots are joined at the end.
#pragma once

#include "flash_copy.cuh"
#include "flash_logits.cuh"

namespace ortisan {

constexpr int thin_warps = 4, thin_lanes = 8, thin_slots = thin_warps * 32 / thin_lanes;

// The pieces of a row that a lane has: `count` loads of `step` elements, 8 lanes side by side.
template <class T, int size, bool wide>
struct ThinRow {
  static constexpr int step = wide ? elements_per_load<T> : 1;
  static constexpr int count = (size + step * thin_lanes - 1) / (step * thin_lanes);
  static constexpr int length = count * step;

  __device__ static int column(int piece, int lane) { return (piece * thin_lanes + lane) * step; }

  __device__ static void load(float (&x)[length], const T* from, int lane) {
#pragma unroll
    for (int piece = 0; piece < count; ++piece) {
      const int at = column(piece, lane);
      const bool there = from != nullptr && at < size;
      if constexpr (wide) {
        const uint4 words = there ? *reinterpret_cast<const uint4*>(from + at) : make_uint4(0, 0, 0, 0);
        T elements[step];
        memcpy(elements, &words, sizeof(words));
#pragma unroll
        for (int i = 0; i < step; ++i) x[piece * step + i] = to_float(elements[i]);
      } else {
        x[piece] = there ? to_float(from[at]) : 0.0f;
      }
    }
  }
};

// The sums of one slot, or of several, for one query.
template <int length>
struct ThinSums {
  float top, total, product[length];

  __device__ void clear() {
    top = minus_infinity();
    total = 0.0f;
#pragma unroll
    for (float& x : product) x = 0.0f;
  }

  __device__ float raise(float to) {
    const float largest = fmaxf(top, to), kept = flash_weight(top, largest);
    top = largest;
    total *= kept;
#pragma unroll
    for (float& x : product) x *= kept;
    return largest;
  }

  // Takes in what the lane `away` has for the same columns.
  __device__ void join(int away) {
    const float largest = fmaxf(top, __shfl_xor_sync(~0u, top, away));
    raise(largest);
    total += __shfl_xor_sync(~0u, total, away);
#pragma unroll
    for (float& x : product) x += __shfl_xor_sync(~0u, x, away);
  }
};

template <class Kind, int rows>
struct ThinShared {
  float top[thin_warps][rows], total[thin_warps][rows], product[thin_warps][rows][Kind::E];
};

// The block's result: what its warps have, joined.
template <class Kind, int rows>
__device__ void join_warps(const FlashCall<typename Kind::T>& call, const ThinShared<Kind, rows>& from, int b, int head,
                           int start) {
  for (int at = threadIdx.x; at < rows * Kind::E; at += thin_warps * 32) {
    const int r = at / Kind::E, e = at % Kind::E, row = start + r;
    if (row >= call.group * call.queries) break;
    float top = minus_infinity(), total = 0.0f, sum = 0.0f;
#pragma unroll
    for (int w = 0; w < thin_warps; ++w) top = fmaxf(top, from.top[w][r]);
#pragma unroll
    for (int w = 0; w < thin_warps; ++w) {
      const float weight = flash_weight(from.top[w][r], top);
      total += weight * from.total[w][r];
      sum += weight * from.product[w][r][e];
    }
    const int h = head * call.group + row / call.queries;
    *(call.y.at(b, h, row % call.queries) + e) =
        from_float<typename Kind::T>(flash_result<Kind>(sum, flash_share<Kind>(call, total)));
  }
}

// One block for each `rows` queries of the heads that share keys.
template <class Kind, int rows, bool wide>
__global__ void __launch_bounds__(thin_warps * 32) flash_thin(const FlashCall<typename Kind::T> call) {
  using T = typename Kind::T;
  using Key = ThinRow<T, Kind::D, wide>;
  using Value = ThinRow<T, Kind::E, wide>;
  constexpr int at_once = Kind::D + Kind::E <= 256 ? 2 : 1;
  __shared__ ThinShared<Kind, rows> shared;
  const int all_rows = call.group * call.queries, per_head = (all_rows + rows - 1) / rows;
  const int of_head = blockIdx.x / per_head, heads = call.heads / call.group;
  const int b = of_head / heads, head = of_head % heads, start = blockIdx.x % per_head * rows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % thin_lanes, slot = threadIdx.x / thin_lanes;

  float q[rows][Key::length];
  ThinSums<Value::length> y[rows];
  int seen[rows], keys = 0;
  int64_t mask_row[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = start + r, h = head * call.group + row / call.queries, query = row % call.queries;
    const bool there = row < all_rows;
    Key::load(q[r], there ? call.q.at(b, h, query) : nullptr, lane);
    y[r].clear();
    seen[r] = there ? visible_keys<Kind>(call, query) : 0;
    mask_row[r] = b * call.mask.batch + h * call.mask.head + query * call.mask.row;
    keys = max(keys, seen[r]);
  }
  for (int first = 0; first < keys; first += at_once * thin_slots) {
    float logit[at_once][rows];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int key = first + i * thin_slots + slot;
      float k[Key::length];
      Key::load(k, key < keys ? call.k.at(b, head, key, call.past) : nullptr, lane);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        float x = 0.0f;
#pragma unroll
        for (int d = 0; d < Key::length; ++d) x += q[r][d] * k[d];
#pragma unroll
        for (int away = 1; away < thin_lanes; away *= 2) x += __shfl_xor_sync(~0u, x, away);
        logit[i][r] = key < seen[r] ? flash_logit<Kind>(call, x, mask_row[r] + key * call.mask.key) : minus_infinity();
      }
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float largest = logit[0][r];
#pragma unroll
      for (int i = 1; i < at_once; ++i) largest = fmaxf(largest, logit[i][r]);
      y[r].raise(largest);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int key = first + i * thin_slots + slot;
      float v[Value::length];
      Value::load(v, key < keys ? call.v.at(b, head, key, call.past) : nullptr, lane);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const float weight = flash_weight(logit[i][r], y[r].top);
        y[r].total += weight;
#pragma unroll
        for (int e = 0; e < Value::length; ++e) y[r].product[e] += weight * v[e];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) {
#pragma unroll
    for (int away = thin_lanes; away < 32; away *= 2) y[r].join(away);
    if (threadIdx.x % 32 < thin_lanes) {
      shared.top[warp][r] = y[r].top;
      shared.total[warp][r] = y[r].total;
#pragma unroll
      for (int e = 0; e < Value::length; ++e) {
        const int column = Value::column(e / Value::step, lane) + e % Value::step;
        if (column < Kind::E) shared.product[warp][r][column] = y[r].product[e];
      }
    }
  }
  __syncthreads();
  join_warps<Kind, rows>(call, shared, b, head, start);
}

}  // namespace ortisan
