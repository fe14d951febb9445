// Writing new rows into a cache of keys or values.
#pragma once

#include <stdexcept>

#include "launch.cuh"

namespace ortisan {

// The past is [outer, past, inner], the output [outer, length, inner], the update [outer, rows, inner] through strides.
// `outer` counts the pieces of all batches, each of which has a start of its own where `starts` is not null.
struct CacheShape {
  int64_t batch, outer, past, length, rows, inner, start;
  int64_t batch_stride, piece_stride, row_stride;  // of the update
};

// The row of the output that row i of the update is written to; in a linear cache it may be none of it.
template <bool circular, class I>
__device__ inline int64_t written_row(const CacheShape& c, const I* starts, int64_t piece, int64_t i) {
  const int64_t own = starts == nullptr ? 0 : static_cast<int64_t>(starts[piece / (c.outer / c.batch)]);
  if (!circular) return own + c.start + i;
  return ((own % c.length + c.start % c.length + i) % c.length + c.length) % c.length;
}

// The past at the front of each piece, zeros behind it.
template <class E>
__global__ void copy_past_kernel(CacheShape c, const E* past, E* out) {
  const int64_t have = c.past * c.inner, want = c.length * c.inner, count = c.outer * want;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += int64_t(gridDim.x) * blockDim.x)
    out[at] = at % want < have ? past[at / want * have + at % want] : E{};
}

// Of rows that meet in a circular cache the last one stays, so only the last ones, from `first` on, are written. Rows that lie outside
// of a linear cache are not, and the host is told.
template <bool circular, class E, class I>
__global__ void write_rows_kernel(CacheShape c, int64_t first, const E* update, const I* starts, E* out, int32_t* fault,
                                  int64_t code) {
  const int64_t rows = c.rows - first, count = c.outer * rows;
  for (int64_t at = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; at < count; at += int64_t(gridDim.x) * blockDim.y) {
    const int64_t piece = at / rows, i = first + at % rows;
    const int64_t row = written_row<circular>(c, starts, piece, i);
    const bool inside = row >= 0 && row < c.length;
    const int64_t pieces = c.outer / c.batch;
    const E* from = update + piece / pieces * c.batch_stride + piece % pieces * c.piece_stride + i * c.row_stride;
    if (!inside && threadIdx.x == 0) report(fault, code);
    for (int64_t k = threadIdx.x; inside && k < c.inner; k += blockDim.x)
      out[(piece * c.length + row) * c.inner + k] = from[k];
  }
}

// numbers: batch, outer, past, length, rows, inner, start, where the update begins and its strides, code. tensors: past,
// update, [starts,] out, fault. The output may be the past's memory: then only new rows are written.
template <bool circular, bool has_starts, class E, class I>
void cache_write(void* const* tensors, const int64_t* numbers, cudaStream_t stream) {
  const CacheShape c{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4],
                     numbers[5], numbers[6], numbers[8], numbers[9], numbers[10]};
  const E *past = static_cast<const E*>(tensors[0]), *update = static_cast<const E*>(tensors[1]) + numbers[7];
  const I* starts = has_starts ? static_cast<const I*>(tensors[2]) : nullptr;
  E* out = static_cast<E*>(tensors[has_starts ? 3 : 2]);
  const int64_t count = c.outer * c.length * c.inner, have = c.outer * c.past * c.inner;
  if (count == 0) return;
  if (past != out || c.past != c.length) {
    if (past < out + count && out < past + have)
      throw std::runtime_error(
          "a written cache overlaps the past in memory without being the same tensor; give it memory of its own, "
          "or the past's with the past's shape");
    copy_past_kernel<<<blocks_for(count, threads_per_block), threads_per_block, 0, stream>>>(c, past, out);
  }
  const int64_t first = circular && c.rows > c.length ? c.rows - c.length : 0, rows = c.outer * (c.rows - first);
  if (rows == 0) return;
  const unsigned lanes = lanes_for(c.inner, 1, threads_per_block);
  const dim3 block(lanes, unsigned(threads_per_block) / lanes);
  write_rows_kernel<circular><<<blocks_for(rows, block.y), block, 0, stream>>>(
      c, first, update, starts, out, static_cast<int32_t*>(tensors[has_starts ? 4 : 3]), numbers[11]);
}

}  // namespace ortisan
