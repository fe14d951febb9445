// Attention for many queries: a block has 64 of them (16 where heads are large), 16 a warp, and goes over the keys in tiles.
//
//            keys               values
//          +------+            +------+
//   q      | tile | x 64 or 32 | tile |      of each tile: logits, their maximum so far, weights;
//  16 rows +------+            +------+      what was summed before is scaled when the maximum grows
//  a warp: logits[16][tile] -> weights, in the registers that the second product reads
//
// Logits and sums are float32. 16-bit types are multiplied as they are, float32 in three TF32 products. The next values
// are on their way while logits are computed, the next keys while values are summed.
#pragma once

#include "flash_copy.cuh"
#include "flash_logits.cuh"

namespace ortisan {

constexpr int min_of(int a, int b) { return a < b ? a : b; }

constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

// How a kind's tiles lie in shared memory. Strides are such that no two lanes of a load meet in a bank.
template <class Kind>
struct FlashTiles {
  using T = typename Kind::T;
  static constexpr bool is_float = sizeof(T) == 4;
  static constexpr int depth = is_float ? 8 : 16;  // of a product
  static constexpr int D = round_up(Kind::D, depth), all_values = round_up(Kind::E, depth);
  static constexpr bool large = D > 256 || all_values > 256;
  static constexpr int warps = large ? 1 : 4, rows = 16 * warps, threads = 32 * warps;
  static constexpr int E = large ? min_of(all_values, 128) : all_values;  // of a block
  static constexpr int pieces = (all_values + E - 1) / E;  // blocks for all values
  static constexpr int keys = D > 128 || E > 128 ? 16 : is_float ? 32 : 64;
  static constexpr int key_stride = is_float ? (D / 8 % 2 == 0 ? D + 8 : D) : D + 8;
  static constexpr int value_stride = is_float ? E + 4 : E + 8;
  static constexpr int elements = (rows + keys) * key_stride + keys * value_stride;
  static constexpr int bytes = elements * int(sizeof(T));

  T* q;  // [rows][D]
  T* k;  // [keys][D]
  T* v;  // [keys][E]

  __device__ explicit FlashTiles(T* memory) : q(memory), k(q + rows * key_stride), v(k + keys * key_stride) {}
};

template <class T, int column_tiles>
struct WarpSums {
  float c[column_tiles][4];

  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[j][i] = 0.0f;
    }
  }
};

// The logits' products: s[16, keys] = q k^T.
template <class Kind, class Sums>
__device__ void multiply_keys(const FlashTiles<Kind>& tiles, int warp, int lane, Sums& s) {
  using Tiles = FlashTiles<Kind>;
  s.clear();
  if constexpr (Tiles::is_float) {
    // Column t of a product's K is element 2 t, and column t + 4 element 2 t + 1, so that pairs are loaded at once.
    const int group = lane / 4, pair = lane % 4 * 2;
    const float* q = tiles.q + (warp * 16 + group) * Tiles::key_stride + pair;
    const float* k = tiles.k + group * Tiles::key_stride + pair;
#pragma unroll
    for (int d = 0; d < Tiles::D; d += 8) {
      const float2 low = *reinterpret_cast<const float2*>(q + d);
      const float2 high = *reinterpret_cast<const float2*>(q + 8 * Tiles::key_stride + d);
      SplitRows a;
      a.set(0, low.x), a.set(1, high.x), a.set(2, low.y), a.set(3, high.y);
#pragma unroll
      for (int j = 0; j < Tiles::keys / 8; ++j) {
        const float2 b = *reinterpret_cast<const float2*>(k + j * 8 * Tiles::key_stride + d);
        multiply(s.c[j], a, b.x, b.y);
      }
    }
  } else {
    const auto* q = tiles.q + (warp * 16 + lane % 16) * Tiles::key_stride + lane / 16 * 8;
    const auto* k = tiles.k + (lane / 16 * 8 + lane % 8) * Tiles::key_stride + lane / 8 % 2 * 8;
#pragma unroll
    for (int d = 0; d < Tiles::D; d += 16) {
      uint32_t a[4], b[4];
      load_matrices(a, q + d);
#pragma unroll
      for (int j = 0; j < Tiles::keys / 8; j += 2) {
        load_matrices(b, k + j * 8 * Tiles::key_stride + d);
        multiply<typename Kind::T>(s.c[j], a, b[0], b[1]);
        multiply<typename Kind::T>(s.c[j + 1], a, b[2], b[3]);
      }
    }
  }
}

// y[16, E] += weights[16, keys] v. The weights stay in the registers that they were computed in.
template <class Kind, class Weights, class Sums>
__device__ void multiply_values(const FlashTiles<Kind>& tiles, int lane, const Weights& p, Sums& y) {
  using Tiles = FlashTiles<Kind>;
  using T = typename Kind::T;
  if constexpr (Tiles::is_float) {
    const float* v = tiles.v + lane % 4 * 2 * Tiles::value_stride + lane / 4;
#pragma unroll
    for (int j = 0; j < Tiles::keys / 8; ++j) {
      SplitRows a;
      a.set(0, p.c[j][0]), a.set(1, p.c[j][2]), a.set(2, p.c[j][1]), a.set(3, p.c[j][3]);
      const float* row = v + j * 8 * Tiles::value_stride;
#pragma unroll
      for (int e = 0; e < Tiles::E / 8; ++e) multiply(y.c[e], a, row[e * 8], row[e * 8 + Tiles::value_stride]);
    }
  } else {
    const T* v = tiles.v + lane % 16 * Tiles::value_stride + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < Tiles::keys / 8; j += 2) {
      uint32_t a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = p.c[j + i / 2] + i % 2 * 2;
        a[i] = packed(from_float<T>(pair[0]), from_float<T>(pair[1]));
      }
#pragma unroll
      for (int e = 0; e < Tiles::E / 8; e += 2) {
        load_transposed(b, v + j * 8 * Tiles::value_stride + e * 8);
        multiply<T>(y.c[e], a, b[0], b[1]);
        multiply<T>(y.c[e + 1], a, b[2], b[3]);
      }
    }
  }
}

// Products -> logits -> weights, for the two rows of a thread. `top` and `total` are their maxima and sums so far.
template <class Kind, class Weights, class Sums>
__device__ void weigh(const FlashCall<typename Kind::T>& call, int b, int h, int row, int first, int lane, Weights& s,
                      float (&top)[2], float (&total)[2], Sums& y) {
  constexpr int key_tiles = FlashTiles<Kind>::keys / 8;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = row + 8 * r, seen = query < call.queries ? visible_keys<Kind>(call, query) : 0;
    const int64_t mask_row = b * call.mask.batch + h * call.mask.head + query * call.mask.row;
    float largest = top[r];
#pragma unroll
    for (int j = 0; j < key_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = first + j * 8 + lane % 4 * 2 + i;
        float& x = s.c[j][2 * r + i];
        x = key < seen ? flash_logit<Kind>(call, x, mask_row + key * call.mask.key) : minus_infinity();
        largest = fmaxf(largest, x);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    const float kept = flash_weight(top[r], largest);
    float sum = total[r] * kept;
#pragma unroll
    for (int j = 0; j < key_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = s.c[j][2 * r + i];
        x = flash_weight(x, largest);
        sum += x;
      }
    }
    top[r] = largest;
    total[r] = sum;
#pragma unroll
    for (auto& c : y.c) {
      c[2 * r] *= kept;
      c[2 * r + 1] *= kept;
    }
  }
}

template <class Kind, class Sums>
__device__ void write_rows(const FlashCall<typename Kind::T>& call, int b, int h, int row, int left, int lane,
                           const float (&total)[2], const Sums& y) {
  using T = typename Kind::T;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = total[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (row + 8 * r >= call.queries) continue;
    const float share = flash_share<Kind>(call, sum);
    T* to = call.y.at(b, h, row + 8 * r);
#pragma unroll
    for (int e = 0; e < FlashTiles<Kind>::E / 8; ++e) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = left + e * 8 + lane % 4 * 2 + i;
        if (column < Kind::E) to[column] = from_float<T>(flash_result<Kind>(y.c[e][2 * r + i], share));
      }
    }
  }
}

// One block for each `rows` queries and `E` value columns of each head. `wide`: rows of keys, values and queries begin and
// end at multiples of 16 bytes.
template <class Kind, bool wide>
__global__ void __launch_bounds__(FlashTiles<Kind>::threads) flash_tiles(const FlashCall<typename Kind::T> call) {
  using T = typename Kind::T;
  using Tiles = FlashTiles<Kind>;
  extern __shared__ __align__(16) unsigned char memory[];
  const Tiles tiles(reinterpret_cast<T*>(memory));
  const int per_head = (call.queries + Tiles::rows - 1) / Tiles::rows * Tiles::pieces, of_head = blockIdx.x / per_head;
  const int b = of_head / call.heads, h = of_head % call.heads, head = h / call.group;
  const int start = blockIdx.x % per_head / Tiles::pieces * Tiles::rows;
  const int left = blockIdx.x % Tiles::pieces * Tiles::E, columns = Kind::E - left;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = start + warp * 16 + lane / 4;
  const int keys = visible_keys<Kind>(call, min(start + Tiles::rows, call.queries) - 1);
  const auto copy_keys = [&](int first) {
    copy_tile<wide, Tiles::threads, Tiles::keys, Tiles::D, Tiles::key_stride>(
        tiles.k, Kind::D, call.q.data,
        [&](int r) { return first + r < keys ? call.k.at(b, head, first + r, call.past) : nullptr; });
    end_group();
  };
  const auto copy_values = [&](int first) {
    copy_tile<wide, Tiles::threads, Tiles::keys, Tiles::E, Tiles::value_stride>(
        tiles.v, columns, call.q.data,
        [&](int r) { return first + r < keys ? call.v.at(b, head, first + r, call.past) + left : nullptr; });
    end_group();
  };

  copy_tile<wide, Tiles::threads, Tiles::rows, Tiles::D, Tiles::key_stride>(tiles.q, Kind::D, call.q.data, [&](int r) {
    return start + r < call.queries ? call.q.at(b, h, start + r) : nullptr;
  });
  if (keys > 0)
    copy_keys(0);
  else
    end_group();
  float top[2] = {minus_infinity(), minus_infinity()}, total[2] = {0.0f, 0.0f};
  WarpSums<T, Tiles::keys / 8> s;
  WarpSums<T, Tiles::E / 8> y;
  y.clear();
  for (int first = 0; first < keys; first += Tiles::keys) {
    copy_values(first);
    finish_copies<1>();
    __syncthreads();
    multiply_keys<Kind>(tiles, warp, lane, s);
    weigh<Kind>(call, b, h, row, first, lane, s, top, total, y);
    finish_copies<0>();
    __syncthreads();  // The values are there, and nobody reads the keys any more.
    if (first + Tiles::keys < keys) copy_keys(first + Tiles::keys);
    multiply_values<Kind>(tiles, lane, s, y);
    __syncthreads();
  }
  finish_copies<0>();
  write_rows<Kind>(call, b, h, row, left, lane, total, y);
}

}  // namespace ortisan
