// mma.sync and ldmatrix.
//
// Lane l of a warp is thread t = l % 4 of group g = l / 4. A piece of four columns of A and four rows of B is one register each:
// A[g][t], A[g + 8][t] and B[t][g]. Lane l has C[g][2t], C[g][2t + 1] and the same of row g + 8. So row k of a piece is seen by
// all lanes after a shuffle: A's inside of each group, B's the same for all groups.
#include <cmath>

#include "access.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

using Floats = float __attribute__((vector_size(64), may_alias));
using Words = uint32_t __attribute__((vector_size(64), may_alias));
using Indices = int32_t __attribute__((vector_size(64)));

// A register of the warp as two vectors.
template <class V>
struct Two {
  V half[2];
};
using F = Two<Floats>;
using W = Two<Words>;

#if defined(__clang__)
#define SHUFFLE(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLE(A, B, ...) __builtin_shuffle(A, B, Indices{__VA_ARGS__})
#endif

template <int T>
Floats rows_of(Floats a) {
  return SHUFFLE(a, a, T, T, T, T, 4 + T, 4 + T, 4 + T, 4 + T, 8 + T, 8 + T, 8 + T, 8 + T, 12 + T, 12 + T, 12 + T,
                 12 + T);
}
template <int T>
Floats columns_of(const F& b) {
  return SHUFFLE(b.half[0], b.half[1], T, 8 + T, 16 + T, 24 + T, T, 8 + T, 16 + T, 24 + T, T, 8 + T, 16 + T, 24 + T, T,
                 8 + T, 16 + T, 24 + T);
}

struct Product {
  F c[4];

  template <int T>
  void row(const F& low, const F& high, const F& b) {
    const Floats even = columns_of<T>(b), odd = columns_of<T + 4>(b);
    for (int h = 0; h < 2; ++h) {
      const Floats x = rows_of<T>(low.half[h]), y = rows_of<T>(high.half[h]);
      c[0].half[h] += x * even;
      c[1].half[h] += x * odd;
      c[2].half[h] += y * even;
      c[3].half[h] += y * odd;
    }
  }
  // Four columns of A, of its upper and its lower rows, by four rows of B.
  void piece(const F& low, const F& high, const F& b) {
    row<0>(low, high, b);
    row<1>(low, high, b);
    row<2>(low, high, b);
    row<3>(low, high, b);
  }
};

template <class V>
Two<V> take(Warp& w, uint32_t place) {
  const V* from = w.at<V>(place);
  return {{from[0], from[1]}};
}

// How a register holds elements of A and B: as float32 vectors, one per element of it.
struct Tf32 {
  static constexpr int kPieces = 1;
  static F read(const W& x, int) {
    F y;
    for (int h = 0; h < 2; ++h) y.half[h] = reinterpret_cast<Floats>(x.half[h] & 0xffffe000u);
    return y;
  }
};
struct Bf16 {
  static constexpr int kPieces = 2;
  static F read(const W& x, int k) {
    F y;
    for (int h = 0; h < 2; ++h)
      y.half[h] = reinterpret_cast<Floats>(k == 0 ? x.half[h] << 16 : x.half[h] & 0xffff0000u);
    return y;
  }
};
struct F16 {
  static constexpr int kPieces = 2;
  static F read(const W& x, int k) {
    F y;
    for (int h = 0; h < 2; ++h) {
      const Words bits = k == 0 ? x.half[h] & 0xffffu : x.half[h] >> 16;
      const Words magnitude = (bits & 0x7fffu) << 13;
      const Floats scaled = reinterpret_cast<Floats>(magnitude) * 0x1p112f;
      const Words special = reinterpret_cast<Words>((bits & 0x7c00u) == 0x7c00u);
      const Words all = (reinterpret_cast<Words>(scaled) & ~special) | ((magnitude | 0x7f800000u) & special);
      y.half[h] = reinterpret_cast<Floats>(all | (bits & 0x8000u) << 16);
    }
    return y;
  }
};

bool whole_warp(Warp& w, const Instr& i) {
  if (!w.gather(i, w.alive)) return false;
  if (w.active == kAll) return true;
  w.fail(i, __builtin_ctz(w.active), "needs all 32 lanes of the warp, but only 0x%08x are there", w.active);
  return false;
}

// m16n8 by k = 4 * kPieces * kRegisters, float32 sums: 4 of D, 2 * kRegisters of A, kRegisters of B, 4 of C.
template <class Element, int kRegisters>
void multiply(Warp& w, const Instr& i) {
  if (!whole_warp(w, i)) return;
  const uint32_t *a = i.op + 4, *b = a + 2 * kRegisters, *c = b + kRegisters;
  Product product;
  for (int k = 0; k < 4; ++k) product.c[k] = take<Floats>(w, c[k]);
  for (int r = 0; r < kRegisters; ++r) {
    const W low = take<Words>(w, a[2 * r]), high = take<Words>(w, a[2 * r + 1]), right = take<Words>(w, b[r]);
    for (int p = 0; p < Element::kPieces; ++p)
      product.piece(Element::read(low, p), Element::read(high, p), Element::read(right, p));
  }
  for (int k = 0; k < 4; ++k)
    for (int h = 0; h < 2; ++h) w.at<Floats>(i.op[k])[h] = product.c[k].half[h];
  ++w.block->matrix_products;
}

// The same with float16 sums, two in each register: 2 of D, A, B, 2 of C.
template <int kRegisters>
void multiply_half(Warp& w, const Instr& i) {
  if (!whole_warp(w, i)) return;
  const uint32_t *a = i.op + 2, *b = a + 2 * kRegisters, *c = b + kRegisters;
  Product product;
  for (int k = 0; k < 4; ++k) product.c[k] = F16::read(take<Words>(w, c[k / 2]), k % 2);
  for (int r = 0; r < kRegisters; ++r) {
    const W low = take<Words>(w, a[2 * r]), high = take<Words>(w, a[2 * r + 1]), right = take<Words>(w, b[r]);
    for (int p = 0; p < 2; ++p) product.piece(F16::read(low, p), F16::read(high, p), F16::read(right, p));
  }
  for (int k = 0; k < 2; ++k) {
    const float *first = reinterpret_cast<const float*>(&product.c[2 * k]), *second = first + kLanes;
    uint32_t* to = w.at<uint32_t>(i.op[k]);
    for (int l = 0; l < kLanes; ++l) to[l] = uint32_t{to_half(second[l])} << 16 | to_half(first[l]);
  }
  ++w.block->matrix_products;
}

// Pieces of 8 rows of 16 bytes: lane 8m + r gives the address of row r of matrix m.
template <int kCount, bool kTransposed>
void load_matrix(Warp& w, const Instr& i) {
  if (!whole_warp(w, i)) return;
  constexpr uint32_t kAddressed = kCount == 4 ? kAll : (1u << (8 * kCount)) - 1;
  const Shape shape(i.flags);
  Addresses a;
  a.take(w, i, i.op[kCount], shape.narrow_address, i.immediate);
  if (!shape.narrow_address)
    for (int l = 0; l < kLanes; ++l) a.at[l] &= ~kWindowMask;
  w.active = kAddressed;
  bool good = a.locate(w, i, Space::kShared, 16, false);
  if (good && watches_shared(w)) {
    for_each(kAddressed, [&](int l) {
      bool none = false;
      good = good && check_read(w, i, l, static_cast<uint32_t>(a.at[l]), 16, &none);
      const uint32_t lanes = kTransposed ? kAll : 15u << (4 * (l % 8));  // that get something of the row
      if (none) w.mark_unwritten(i.op[l / 8], lanes, i.line);
    });
  }
  w.active = kAll;
  if (!good) return;
  for (int m = 0; m < kCount; ++m) {
    alignas(16) uint16_t rows[8][8];
    for (int r = 0; r < 8; ++r) std::memcpy(rows[r], a.host[8 * m + r], 16);
    uint32_t* to = w.at<uint32_t>(i.op[m]);
    if (!kTransposed) {
      std::memcpy(to, rows, sizeof rows);
      continue;
    }
    for (int l = 0; l < kLanes; ++l) to[l] = uint32_t{rows[2 * (l % 4) + 1][l / 4]} << 16 | rows[2 * (l % 4)][l / 4];
  }
}

}  // namespace

const Entry kMatrix[] = {
    {"mma.m16n8k4.f32.tf32", multiply<Tf32, 1>},
    {"mma.m16n8k8.f32.tf32", multiply<Tf32, 2>},
    {"mma.m16n8k8.f32.bf16", multiply<Bf16, 1>},
    {"mma.m16n8k16.f32.bf16", multiply<Bf16, 2>},
    {"mma.m16n8k8.f32.f16", multiply<F16, 1>},
    {"mma.m16n8k16.f32.f16", multiply<F16, 2>},
    {"mma.m16n8k8.f16.f16", multiply_half<1>},
    {"mma.m16n8k16.f16.f16", multiply_half<2>},
    {"ldmatrix.x1", load_matrix<1, false>},
    {"ldmatrix.x2", load_matrix<2, false>},
    {"ldmatrix.x4", load_matrix<4, false>},
    {"ldmatrix.x1.trans", load_matrix<1, true>},
    {"ldmatrix.x2.trans", load_matrix<2, true>},
    {"ldmatrix.x4.trans", load_matrix<4, true>},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#undef SHUFFLE
