// Reductions, the places of largest and smallest elements, and running sums over the middle axis of [outer, n, inner].
//
// A row, or where inner > 1 a column, belongs to a block of threads: each thread folds what is a block's width apart, then the
// threads' results are folded in a fixed order.
#pragma once

#include "block.cuh"
#include "reductions.h"

namespace ortisan {

// 16-bit floats are folded as floats, all else as it is.
template <class Op, class T>
__global__ void reduce_kernel(int64_t results, int64_t n, int64_t inner, const T* in, T* out) {
  using A = compute_t<T>;
  using Fold = typename Op::fold;
  for (int64_t at = blockIdx.x; at < results; at += gridDim.x) {
    const T* x = in + at / inner * n * inner + at % inner;
    A total = Fold::template start<A>();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      total = Fold::template fold<A>(total, Op::template prepare<A>(static_cast<A>(load(x[i * inner]))));
    total = block_reduce(total, Fold::template start<A>(), [](A a, A b) { return Fold::template fold<A>(a, b); });
    if (threadIdx.x == 0) out[at] = store<T>(Op::template finish<A>(total, n));
  }
}

// numbers: outer, n, inner. tensors: x, y.
template <class Op, class T>
void reduce(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t n = numbers[1], inner = numbers[2], results = numbers[0] * inner;
  if (results == 0) return;
  reduce_kernel<Op, T><<<blocks_for(results, 1), lanes_for(n, 32, threads_per_block), 0, stream>>>(
      results, n, inner, static_cast<const T*>(tensors[0]), static_cast<T*>(tensors[1]));
}

// An element and its place; -1 is that of none.
template <class A>
struct Candidate {
  A value;
  int64_t place;
};

template <class A>
__device__ inline Candidate<A> exchanged(Candidate<A> own, int distance) {
  return {exchanged(own.value, distance), exchanged(own.place, distance)};
}

// Of two candidates the one that beats the other; of equals the first, or with `last` the last.
template <bool maximum, bool last, class A>
__device__ inline Candidate<A> better(Candidate<A> a, Candidate<A> b) {
  if (a.place < 0 || b.place < 0) return a.place < 0 ? b : a;
  const Candidate<A> first = a.place < b.place ? a : b, second = a.place < b.place ? b : a;
  return detail::beats<maximum>(second.value, first.value, last) ? second : first;
}

template <bool maximum, bool last, class T>
__global__ void arg_reduce_kernel(int64_t results, int64_t n, int64_t inner, const T* in, int64_t* out) {
  using A = compute_t<T>;
  const Candidate<A> none{A(0), -1};
  for (int64_t at = blockIdx.x; at < results; at += gridDim.x) {
    const T* x = in + at / inner * n * inner + at % inner;
    Candidate<A> best = none;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      best = better<maximum, last>(best, Candidate<A>{static_cast<A>(load(x[i * inner])), i});
    best = block_reduce(best, none, better<maximum, last, A>);
    if (threadIdx.x == 0) out[at] = best.place;
  }
}

// numbers: outer, n, inner. tensors: x, y.
template <bool maximum, bool last, class T>
void arg_reduce(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t n = numbers[1], inner = numbers[2], results = numbers[0] * inner;
  if (results * n == 0) return;
  arg_reduce_kernel<maximum, last, T><<<blocks_for(results, 1), lanes_for(n, 32, threads_per_block), 0, stream>>>(
      results, n, inner, static_cast<const T*>(tensors[0]), static_cast<int64_t*>(tensors[1]));
}

// out[o, k, i] = sum of in[o, m, i] over m <= k; `exclusive` leaves m == k out, `reverse` runs from the end. A warp goes along a row,
// 32 elements at a time.
template <bool exclusive, bool reverse, class T>
__global__ void cumsum_kernel(int64_t rows, int64_t n, int64_t inner, const T* in, T* out) {
  using A = compute_t<T>;
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += int64_t(gridDim.x) * blockDim.y) {
    const int64_t base = row / inner * n * inner + row % inner;
    A before = A(0);
    for (int64_t start = 0; start < n; start += 32) {
      const int64_t k = start + threadIdx.x;
      const int64_t at = base + (reverse ? n - 1 - k : k) * inner;
      const A own = k < n ? static_cast<A>(load(in[at])) : A(0);
      A sum = own;
      for (int distance = 1; distance < 32; distance *= 2) {
        const A other = __shfl_up_sync(all_lanes, sum, distance);
        sum = int(threadIdx.x) >= distance ? fn::add(other, sum) : sum;
      }
      const A others = __shfl_up_sync(all_lanes, sum, 1);
      if (k < n) out[at] = store<T>(fn::add(before, exclusive ? (threadIdx.x == 0 ? A(0) : others) : sum));
      before = fn::add(before, __shfl_sync(all_lanes, sum, 31));
    }
  }
}

// numbers: outer, n, inner. tensors: x, y.
template <bool exclusive, bool reverse, class T>
void cumsum(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const int64_t n = numbers[1], inner = numbers[2], rows = numbers[0] * inner;
  if (rows * n == 0) return;
  const dim3 block(32, 8);
  cumsum_kernel<exclusive, reverse, T><<<blocks_for(rows, block.y), block, 0, stream>>>(
      rows, n, inner, static_cast<const T*>(tensors[0]), static_cast<T*>(tensors[1]));
}

}  // namespace ortisan
