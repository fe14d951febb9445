// Folding many values into one with an associative operation, accurately and in a fixed order.
//
// A row is folded in 32 lanes per block of 1024 and the blocks pairwise, so the rounding error of a sum grows with the
// logarithm of its length. Columns are folded side by side in blocks of 256 rows.
#pragma once

#include <cstdint>

#include "pieces.h"
#include "reductions.h"

namespace ortisan {

constexpr int64_t fold_lanes = 32;
constexpr int64_t fold_block = 1024;
constexpr int64_t fold_width = 64;    // most columns folded side by side
constexpr int64_t fold_height = 256;  // rows after which columns are folded into their total

#if defined(__AVX__)
constexpr int fold_vector_bytes = 32;
#else
constexpr int fold_vector_bytes = 16;
#endif

template <class A>
struct FoldVector {
  typedef A type __attribute__((vector_size(fold_vector_bytes)));
};

template <class A>
inline typename FoldVector<A>::type load_vector(const A* x) {
  typename FoldVector<A>::type result;
  __builtin_memcpy(&result, x, sizeof(result));
  return result;
}

// Folds map(value) of `padded` values, a positive multiple of fold_lanes: lanes first, then their halves onto each other. `map`
// takes vectors too.
template <class Fold, class A, class Map>
inline A fold_mapped(const A* buffer, int64_t padded, const Map& map) {
  A lane[fold_lanes];
  int64_t half = fold_lanes / 2;
  if constexpr (std::is_floating_point_v<A>) {
    // The same in vectors, which GCC would keep in memory if they were written as arrays.
    using V = typename FoldVector<A>::type;
    constexpr int width = sizeof(V) / sizeof(A), count = fold_lanes / width;
    V sum[count];
#pragma GCC unroll 16
    for (int j = 0; j < count; ++j) sum[j] = map(load_vector(buffer + j * width));
    for (int64_t i = fold_lanes; i < padded; i += fold_lanes) {
#pragma GCC unroll 16
      for (int j = 0; j < count; ++j) sum[j] = Fold::fold(sum[j], map(load_vector(buffer + i + j * width)));
    }
#pragma GCC unroll 16
    for (int j = count - 1; j > 0; --j) {
      // Lane j belongs to lane j - 2^k, for the largest 2^k <= j: the halving of the other branch.
      const int power = j >= 8 ? 8 : j >= 4 ? 4 : j >= 2 ? 2 : 1;
      sum[j - power] = Fold::fold(sum[j - power], sum[j]);
    }
    half = width / 2;
    __builtin_memcpy(lane, &sum[0], sizeof(V));
  } else {
    for (int64_t j = 0; j < fold_lanes; ++j) lane[j] = map(buffer[j]);
    for (int64_t i = fold_lanes; i < padded; i += fold_lanes) {
      for (int64_t j = 0; j < fold_lanes; ++j) lane[j] = Fold::fold(lane[j], map(buffer[i + j]));
    }
  }
  for (; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lane[j] = Fold::fold(lane[j], lane[j + half]);
  }
  return lane[0];
}

template <class Fold, class A>
inline A fold_buffer(const A* buffer, int64_t padded) {
  return fold_mapped<Fold>(buffer, padded, [](auto value) { return value; });
}

// Folds value(begin), ..., value(end - 1), at most fold_block of them. The values go through a buffer, because GCC vectorises
// a loop that writes whatever value() computes, and a loop that folds an array, but seldom both in one.
template <class Fold, class A, class Value>
inline A fold_short(int64_t begin, int64_t end, const Value& value) {
  alignas(64) A buffer[fold_block];
  const int64_t count = end - begin;
  for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<A>(value(begin + i));
  int64_t padded = count;
  while (padded % fold_lanes != 0 || padded == 0) buffer[padded++] = Fold::template start<A>();
  return fold_buffer<Fold>(buffer, padded);
}

// Folds value(begin), ..., value(end - 1).
template <class Fold, class A, class Value>
[[gnu::noinline]] A fold_row(int64_t begin, int64_t end, const Value& value) {
  if (end - begin <= fold_block) return fold_short<Fold, A>(begin, end, value);
  // partial[k] waits for its equal: it folds 2^k blocks. The bits of `blocks` say which ones are filled.
  A partial[64];
  int64_t level = 0;
  uint64_t blocks = 0;
  for (int64_t at = begin; at < end || at == begin; at += fold_block) {
    partial[level++] = fold_short<Fold, A>(at, min_of(at + fold_block, end), value);
    ++blocks;
    for (uint64_t bits = blocks; (bits & 1) == 0; bits >>= 1, --level) {
      partial[level - 2] = Fold::fold(partial[level - 2], partial[level - 1]);
    }
  }
  while (level > 1) {
    partial[level - 2] = Fold::fold(partial[level - 2], partial[level - 1]);
    --level;
  }
  return partial[0];
}

// fold_row of map(x), read where it is when nothing has to be padded. `map` takes values of the type A and vectors of them.
template <class Fold, class A, class T, class Map>
inline A fold_array(const T* x, int64_t n, const Map& map) {
  if constexpr (std::is_same_v<A, T>) {
    if (n > 0 && n <= fold_block && n % fold_lanes == 0) return fold_mapped<Fold>(x, n, map);
  }
  return fold_row<Fold, A>(0, n, [=](int64_t i) { return map(static_cast<A>(load(x[i]))); });
}

template <class Fold, class A, class T>
inline A fold_array(const T* x, int64_t n) {
  return fold_array<Fold, A>(x, n, [](auto value) { return value; });
}

// total[j] = fold over i < n of value(i, j), for j < width <= fold_width.
template <class Fold, class A, class Value>
inline void fold_columns(int64_t n, int64_t width, A* total, const Value& value) {
  A part[fold_width];
  for (int64_t j = 0; j < width; ++j) total[j] = Fold::template start<A>();
  for (int64_t begin = 0; begin < n; begin += fold_height) {
    const int64_t end = min_of(begin + fold_height, n);
    for (int64_t j = 0; j < width; ++j) part[j] = Fold::template start<A>();
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < width; ++j) part[j] = Fold::fold(part[j], static_cast<A>(value(i, j)));
    }
    for (int64_t j = 0; j < width; ++j) total[j] = Fold::fold(total[j], part[j]);
  }
}

}  // namespace ortisan
