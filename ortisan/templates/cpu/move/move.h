// Moving elements without looking at them: strided copies of any rank, and transposes.
//
// E is an unsigned integer of the element's size. Strides are in elements; they may be zero (expand) or negative (reversed).
#pragma once

#include <cstdint>

#include "generate.h"
#include "pieces.h"
#include "stream.h"

namespace ortisan {

namespace detail {

struct CopyAxis {
  int64_t extent;
  int64_t src;
  int64_t dst;
};

// The axes of a copy without those of extent 1, neighbours merged where both sides allow it. Returns their number.
inline int64_t merge_axes(int64_t rank, const int64_t* extent, const int64_t* src_stride, const int64_t* dst_stride,
                          CopyAxis* axes) {
  int64_t count = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (extent[i] == 1) continue;
    const CopyAxis axis = {extent[i], src_stride[i], dst_stride[i]};
    CopyAxis* last = axes + count - 1;
    if (count > 0 && last->src == axis.src * axis.extent && last->dst == axis.dst * axis.extent) {
      *last = {last->extent * axis.extent, axis.src, axis.dst};
    } else {
      axes[count++] = axis;
    }
  }
  return count;
}

// Calls f(src_offset, dst_offset) for the indices [begin, end) of the nest of `count` axes, the last one fastest.
template <class F>
void for_each_offset(int64_t count, const CopyAxis* axes, int64_t begin, int64_t end, const F& f) {
  int64_t index[max_rank] = {};
  int64_t src = 0;
  int64_t dst = 0;
  int64_t rest = begin;
  for (int64_t i = count - 1; i >= 0; --i) {
    index[i] = rest % axes[i].extent;
    rest /= axes[i].extent;
    src += index[i] * axes[i].src;
    dst += index[i] * axes[i].dst;
  }
  for (int64_t n = begin; n < end; ++n) {
    f(src, dst);
    for (int64_t i = count - 1; i >= 0; --i) {
      src += axes[i].src;
      dst += axes[i].dst;
      if (++index[i] < axes[i].extent) break;
      src -= axes[i].extent * axes[i].src;
      dst -= axes[i].extent * axes[i].dst;
      index[i] = 0;
    }
  }
}

template <class E>
void copy_run(int64_t count, const E* src, int64_t src_stride, E* dst, int64_t dst_stride, bool streamed = false) {
  if (dst_stride == 1 && src_stride == 1 && streamed) {
    stream_copy(dst, src, count * int64_t(sizeof(E)));
  } else if (dst_stride == 1 && src_stride == 1) {
    __builtin_memcpy(dst, src, static_cast<uint64_t>(count) * sizeof(E));
  } else if (dst_stride == 1 && src_stride == 0) {
    const E value = *src;
    for (int64_t i = 0; i < count; ++i) dst[i] = value;
  } else if (dst_stride == 1) {
    for (int64_t i = 0; i < count; ++i) dst[i] = src[i * src_stride];
  } else {
    for (int64_t i = 0; i < count; ++i) dst[i * dst_stride] = src[i * src_stride];
  }
}

// dst[i * dst_stride + j] = src[j * src_stride + i] for i < rows, j < columns, in tiles that stay in the cache.
template <class E>
void transpose_block(int64_t rows, int64_t columns, const E* src, int64_t src_stride, E* dst, int64_t dst_stride) {
  constexpr int64_t tile = 16;
  for (int64_t j0 = 0; j0 < columns; j0 += tile) {
    const int64_t width = min_of(tile, columns - j0);
    for (int64_t i0 = 0; i0 < rows; i0 += tile) {
      const int64_t height = min_of(tile, rows - i0);
      E block[tile][tile];
      for (int64_t j = 0; j < width; ++j) {
        for (int64_t i = 0; i < height; ++i) block[i][j] = src[(j0 + j) * src_stride + i0 + i];
      }
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t j = 0; j < width; ++j) dst[(i0 + i) * dst_stride + j0 + j] = block[i][j];
      }
    }
  }
}

// dst[i * columns + j] = src[j * src_stride + i] for i < rows, j < columns: a picture's colours come together.
template <int64_t columns, class E>
void interleave(int64_t rows, const E* src, int64_t src_stride, E* dst) {
  for (int64_t i = 0; i < rows; ++i) {
    ORTISAN_UNROLL(4)
    for (int64_t j = 0; j < columns; ++j) dst[i * columns + j] = src[j * src_stride + i];
  }
}

// dst[j * dst_stride + i] = src[i * columns + j] for i < rows, j < columns.
template <int64_t columns, class E>
void separate(int64_t rows, const E* src, E* dst, int64_t dst_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    ORTISAN_UNROLL(4)
    for (int64_t j = 0; j < columns; ++j) dst[j * dst_stride + i] = src[i * columns + j];
  }
}

// Copies between [outer, columns, rows] and [outer, rows, columns] for 2 to 4 columns. Returns whether it was one.
template <class E>
bool copy_interleaved(Context& c, int64_t count, const CopyAxis* axes, const E* src, E* dst) {
  if (count < 2 || count > 3) return false;
  const CopyAxis a = axes[count - 2], b = axes[count - 1], outer = count == 3 ? axes[0] : CopyAxis{1, 0, 0};
  const auto few = [](int64_t n) { return n >= 2 && n <= 4; };
  // The copy is written in the order of dst: [rows, columns] of it, or [columns, rows].
  const bool joins = few(b.extent) && b.dst == 1 && a.dst == b.extent && a.src == 1;
  const bool parts = few(a.extent) && b.dst == 1 && a.src == 1 && b.src == a.extent;
  if (!joins && !parts) return false;
  const int64_t rows = joins ? a.extent : b.extent, columns = joins ? b.extent : a.extent;
  constexpr int64_t band = 1024;
  const int64_t bands = ceil_quotient(rows, band);
  parallel_ranges(c, outer.extent * bands, min_of(band, rows) * columns, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = n % bands * band, some = min_of(band, rows - row);
      const E* from = src + n / bands * outer.src + row * (joins ? 1 : columns);
      E* to = dst + n / bands * outer.dst + row * (joins ? columns : 1);
      if (joins && columns == 2) interleave<2>(some, from, b.src, to);
      if (joins && columns == 3) interleave<3>(some, from, b.src, to);
      if (joins && columns == 4) interleave<4>(some, from, b.src, to);
      if (!joins && columns == 2) separate<2>(some, from, to, a.dst);
      if (!joins && columns == 3) separate<3>(some, from, to, a.dst);
      if (!joins && columns == 4) separate<4>(some, from, to, a.dst);
    }
  });
  return true;
}

// The axis along which src is contiguous when dst is contiguous along the last axis and src is not; else -1.
inline int64_t transposed_axis(int64_t count, const CopyAxis* axes) {
  if (count < 2 || axes[count - 1].dst != 1 || axes[count - 1].src == 1 || axes[count - 1].extent < 4) return -1;
  for (int64_t i = count - 2; i >= 0; --i) {
    if (axes[i].src == 1 && axes[i].extent >= 4) return i;
  }
  return -1;
}

template <class E>
void copy_transposed(Context& c, int64_t count, CopyAxis* axes, int64_t row_axis, const E* src, E* dst) {
  const CopyAxis column = axes[count - 1];
  const CopyAxis row = axes[row_axis];
  // Cut the rows in bands, so that one large matrix gives work to every thread: the band replaces the row axis.
  constexpr int64_t band = 64;
  axes[row_axis] = {ceil_quotient(row.extent, band), band * row.src, band * row.dst};
  int64_t outer = 1;
  for (int64_t i = 0; i < count - 1; ++i) outer *= axes[i].extent;
  // The band axis goes last, so that its index is known from the running number.
  const CopyAxis bands = axes[row_axis];
  for (int64_t i = row_axis; i < count - 2; ++i) axes[i] = axes[i + 1];
  axes[count - 2] = bands;
  parallel_ranges(c, outer, min_of(band, row.extent) * column.extent, [&](int64_t begin, int64_t end) {
    int64_t n = begin;
    for_each_offset(count - 1, axes, begin, end, [&](int64_t src_offset, int64_t dst_offset) {
      const int64_t rows = min_of(band, row.extent - n++ % bands.extent * band);
      transpose_block(rows, column.extent, src + src_offset, column.src, dst + dst_offset, row.dst);
    });
  });
}

}  // namespace detail

// Whether a copy moves anything. Where it does not, its pointers may be null, to which nothing can be added.
template <int R>
bool spans_elements(const int64_t (&extent)[R]) {
  for (int axis = 0; axis < R; ++axis) {
    if (extent[axis] <= 0) return false;
  }
  return true;
}

// dst[sum i_a dst_stride_a] = src[sum i_a src_stride_a] over all indices i_a < extent_a; rank <= max_rank. The two must not
// overlap. With `streamed`, long copies leave nothing of dst in the caches: for what nobody reads soon.
template <class E>
void copy_nd(Context& c, int64_t rank, const int64_t* extent, const E* src, const int64_t* src_stride, E* dst,
             const int64_t* dst_stride, bool streamed = false) {
  for (int64_t i = 0; i < rank; ++i) {
    if (extent[i] <= 0) return;
  }
  detail::CopyAxis axes[max_rank + 1];
  int64_t count = detail::merge_axes(rank, extent, src_stride, dst_stride, axes);
  if (count == 0) axes[count++] = {1, 1, 1};
  if (detail::copy_interleaved(c, count, axes, src, dst)) return;
  const int64_t row_axis = detail::transposed_axis(count, axes);
  if (row_axis >= 0) return detail::copy_transposed(c, count, axes, row_axis, src, dst);

  // The last axis in runs of at most `piece_elements`, all others as one counted nest.
  const detail::CopyAxis run = axes[count - 1];
  const int64_t cuts = ceil_quotient(run.extent, piece_elements);
  axes[count - 1] = {cuts, piece_elements * run.src, piece_elements * run.dst};
  int64_t outer = 1;
  for (int64_t i = 0; i < count; ++i) outer *= axes[i].extent;
  streamed = streamed && outer * min_of(run.extent, piece_elements) * int64_t(sizeof(E)) >= stream_bytes;
  parallel_ranges(c, outer, min_of(run.extent, piece_elements), [&](int64_t begin, int64_t end) {
    int64_t n = begin;
    detail::for_each_offset(count, axes, begin, end, [&](int64_t src_offset, int64_t dst_offset) {
      const int64_t length = min_of(piece_elements, run.extent - n++ % cuts * piece_elements);
      detail::copy_run(length, src + src_offset, run.src, dst + dst_offset, run.dst, streamed);
    });
  });
}

}  // namespace ortisan
