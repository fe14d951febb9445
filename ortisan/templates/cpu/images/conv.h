// Convolutions on the register tiles of matrix products: a row of A is what a pixel of the output reads, a column of B a filter.
//
// The filters of a group are packed like the B of a product, K = kernel_rows * kernel_columns * channels. A tile is up to tile_rows
// neighbours in a row of the output. What they read with one row of the filters is contiguous for each of them, `stride_x` pixels
// apart: A is read where it is. At the edges of the image a tile goes filter column by filter column, and leaves out the pixels
// for which that column is outside; filter rows outside of the image are left out. Sums are added up in the order of k,
// whatever is left out, so a pixel does not depend on its neighbours, nor on the batch.
//
// Where the filters' rows are short, tiles would begin again too often: a tile of its own goes over all rows of the filters, and
// what the pixels at the edges read is gathered first. So is what all pixels read where rows of the output are short.
#pragma once

#include <cstdint>

#include "conv_output.h"
#include "conv_shape.h"
#include "gemm.h"
#include "lanes.h"
#include "short_tile.h"

namespace ortisan {
namespace detail {

constexpr int64_t conv_tasks = 32;  // as many as there should be, so that they can be shared out evenly
constexpr int64_t short_run = 48;  // k of one row of the filters that are too few for a tile
constexpr int64_t short_elements = 4096;  // what a tile at an edge gathers
constexpr int64_t gathered_elements = 16384;  // what a task gathers at a time
constexpr int64_t gathered_rows = 128;
constexpr int64_t narrow = 4;  // columns of the output that make tiles too low

// Whether tiles go over all rows of the filters at once.
template <class T>
constexpr bool has_short_runs(const ConvShape& s) {
  const int64_t run = s.kernel_columns * s.C;
  return run < short_run && s.columns >= narrow && s.dilation_x == 1 && s.groups == 1 &&
         s.kernel_rows * run * tile_rows<T> <= short_elements;
}

// Gathers what the windows of `count` neighbours in a row of the output read, K elements each. Writes up to a vector more.
template <class T>
inline void gather_neighbours(const ConvShape& s, int64_t image, int64_t y, int64_t begin, int64_t count, const T* x,
                              const T* x_end, int64_t channel, int64_t channels, T* to) {
  constexpr int64_t lanes = lane_count<T>;
  const int64_t run = s.kernel_columns * channels, line = s.W * s.C;
  const bool together = s.dilation_x == 1 && s.groups == 1;
  const T* corner = x + (image * s.H + s.input_row(y, 0)) * line + channel;
  for (int64_t column = begin; column < begin + count; ++column) {
    const int64_t first = s.input_column(column, 0);
    const bool whole = together && first >= 0 && first + s.kernel_columns <= s.W;
    for (int64_t i = 0; i < s.kernel_rows; ++i, to += run) {
      const bool inside = s.is_inside(y, i);
      const T* from = corner + i * s.dilation_y * line + first * s.C;
      if (whole && inside && x_end - from >= run + lanes) {
        for (int64_t k = 0; k < run; k += lanes) __builtin_memcpy(to + k, from + k, lanes * sizeof(T));
        continue;
      }
      for (int64_t j = 0; j < s.kernel_columns; ++j) {
        const bool there = inside && uint64_t(s.input_column(column, j)) < uint64_t(s.W);
        for (int64_t k = 0; k < channels; ++k) to[j * channels + k] = there ? from[j * s.dilation_x * s.C + k] : T(0);
      }
    }
  }
}

// The tiles of one rectangle over up to tile_panels panels of one group.
template <class T>
struct ConvTiles {
  static constexpr int64_t NR = panel_width<T>;

  const ConvShape& s;
  const Blocking& blocking;
  const ConvOutput<T>& output;
  const T* x;
  Band band;
  int64_t channel, channels;  // the group's first channel in the input, and how many it has
  int64_t first_filter, filters;  // of the group
  const T* packed;  // of the group

  void run(int64_t first, int64_t last) const {
    for (int64_t p = first; p < last;) {
      const int64_t panels = last - p < tile_panels<T> ? 1 : tile_panels<T>;
      run_panels(p, panels);
      p += panels;
    }
  }

 private:
  int64_t run_length() const { return s.kernel_columns * channels; }
  bool is_short() const { return has_short_runs<T>(s); }

  void run_panels(int64_t p, int64_t panels) const {
    T sums[largest_band * NR * tile_panels<T>];
    const int64_t K = s.kernel_rows * run_length(), width = panels * NR;
    const int64_t across = band.right - band.left, tiles = ceil_quotient(across, rows_over<T>(panels));
    const T* b = packed + p * K * NR;
    const int64_t depth = is_short() ? K : blocking.depth;
    for (int64_t k0 = 0; k0 < K; k0 += depth) {
      const int64_t k1 = min_of(k0 + depth, K);
      const int64_t all = (band.bottom - band.top) * tiles;
      const bool fetches = tile_of<T>::prefetches && blocking.prefetch && all > 1;
      const int64_t share = fetches ? (k1 - k0) * NR * int64_t(sizeof(T)) / all : 0;
      const char* next = reinterpret_cast<const char*>(b + (k1 < K ? k1 : panels * K) * NR);
      T* tile = sums;
      for (int64_t y = band.top; y < band.bottom; ++y) {
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t begin = band.left + t * across / tiles, end = band.left + (t + 1) * across / tiles;
          if (k0 == 0 && !is_short()) {
            for (int64_t i = 0; i < (end - begin) * width; ++i) tile[i] = T(0);
          }
          if (k1 == K && K >= depth_that_fetches) fetch_output(p, panels, y, begin, end);
          const bool written = is_short() && add_all(b, K, p, panels, y, begin, end, tile);
          if (!is_short()) add(b, K * NR, panels, y, begin, end, k0, k1, tile, next, share);
          next += share;
          if (k1 == K && !written) finish(p, panels, y, begin, end, tile);
          tile += (end - begin) * width;
        }
      }
    }
  }

  // The sums of pixels [begin, end) of row y over all K, where runs are short. Gives whether the output was written instead.
  bool add_all(const T* b, int64_t K, int64_t p, int64_t panels, int64_t y, int64_t begin, int64_t end, T* sums) const {
    const int64_t width = panels * NR;
    if (s.input_column(begin, 0) < 0 || s.input_column(end - 1, s.kernel_columns - 1) >= s.W) {
      T a[short_elements + lane_count<T>];
      gather_neighbours(s, band.image, y, begin, end - begin, x, x + s.N * s.H * s.W * s.C, channel, channels, a);
      for (int64_t i = 0; i < (end - begin) * width; ++i) sums[i] = T(0);
      add_shape_of(end - begin, panels, K, a, K, b, K * NR, sums, {});
      return false;
    }
    int64_t first = 0, last = s.kernel_rows;
    while (first < last && !s.is_inside(y, first)) ++first;
    while (first < last && !s.is_inside(y, last - 1)) --last;
    const T* corner = x + ((band.image * s.H + s.input_row(y, 0)) * s.W + s.input_column(begin, 0)) * s.C;
    const ShortRows<T> rows = {corner, s.dilation_y * s.W * s.C, s.stride_x * s.C, run_length(), first, last, b,
                               K * NR};
    const int64_t col = first_filter + p * NR;
    if (output.clamp.bias == nullptr || filters - p * NR < width) {
      add_short<T>(end - begin, panels, rows, sums, width, {});
      return false;
    }
    add_short<T>(end - begin, panels, rows, output.out + pixel(y, begin) * s.O + col, s.O, output.clamp.from(col));
    return true;
  }

  // Adds what the k in [k0, k1) give to pixels [begin, end) of row y.
  void add(const T* b, int64_t panel_stride, int64_t panels, int64_t y, int64_t begin, int64_t end, int64_t k0,
           int64_t k1, T* sums, const char* next, int64_t share) const {
    const int64_t run = run_length(), width = panels * NR;
    const bool whole = s.dilation_x == 1 && s.groups == 1 && s.input_column(begin, 0) >= 0 &&
                       s.input_column(end - 1, s.kernel_columns - 1) < s.W;
    for (int64_t i = k0 / run; i * run < k1; ++i) {
      if (!s.is_inside(y, i)) continue;
      const T* row = x + ((band.image * s.H + s.input_row(y, i)) * s.W * s.C + channel);
      const int64_t from = max_of(k0, i * run), to = min_of(k1, (i + 1) * run);
      if (whole) {
        const int64_t bytes = share * (to - from) / (k1 - k0);
        add_shape_of(end - begin, panels, to - from, row + s.input_column(begin, 0) * s.C + (from - i * run),
                     s.stride_x * s.C, b + from * NR, panel_stride, sums, Next::spread(next, bytes, to - from));
        next += bytes;
        continue;
      }
      for (int64_t k = from; k < to;) {
        const int64_t j = (k - i * run) / channels, tap = i * run + j * channels;
        const int64_t stop = min_of(to, tap + channels);
        int64_t left = begin, right = end;
        s.clip(j, left, right);
        if (left < right) {
          const int64_t bytes = share * (stop - k) / (k1 - k0);
          add_shape_of(right - left, panels, stop - k, row + s.input_column(left, j) * s.C + (k - tap),
                       s.stride_x * s.C, b + k * NR, panel_stride, sums + (left - begin) * width,
                       Next::spread(next, bytes, stop - k));
          next += bytes;
        }
        k = stop;
      }
    }
  }

  static void add_shape_of(int64_t rows, int64_t panels, int64_t count, const T* a, int64_t lda, const T* b,
                           int64_t panel_stride, T* sums, const Next& next) {
    if constexpr (tile_panels<T> > 1) {
      if (panels > 1) return add_panels<T>(rows, panels, count, a, lda, b, panel_stride, sums, true, next);
    }
    add_tile<T>(rows, count, a, lda, b, NR, sums, NR, true, next);
  }

  int64_t pixel(int64_t y, int64_t column) const { return (band.image * s.rows + y) * s.columns + column; }

  void fetch_output(int64_t p, int64_t panels, int64_t y, int64_t begin, int64_t end) const {
    for (int64_t column = begin; column < end; ++column) {
      for (int64_t i = 0; i < panels; ++i) output.prefetch(pixel(y, column), first_filter + (p + i) * NR);
    }
  }

  void finish(int64_t p, int64_t panels, int64_t y, int64_t begin, int64_t end, const T* sums) const {
    const int64_t n = min_of(panels * NR, filters - p * NR), col = first_filter + p * NR;
    output.epilogue(pixel(y, begin), end - begin, col, sums, panels * NR, n);
  }
};

// How the work is divided: pieces of the output, and shares of the panels of all groups. Both depend on the sizes only.
struct ConvTasks {
  bool gathers;
  Bands bands;
  int64_t together;  // pixels that are gathered at a time
  int64_t pieces, panels, each, units, shares;  // units: panels that are worked on together, `each` of them in a group

  template <class T>
  static ConvTasks of(const ConvShape& s, const Blocking& blocking) {
    const int64_t run = s.kernel_columns * (s.C / s.groups), K = s.kernel_rows * run;
    const int64_t pixels = s.N * s.rows * s.columns, most = min_of(blocking.band, largest_band);
    const bool gathers =
        (run < short_run || s.columns < narrow) && !has_short_runs<T>(s) && K * tile_rows<T> <= gathered_elements;
    const int64_t together = min_of(min_of(most, gathered_rows), gathered_elements / max_of(1, K));
    const Bands bands = Bands::of(s.N, s.rows, s.columns, most);
    const int64_t pieces = gathers ? ceil_quotient(pixels, together) : bands.count();
    const int64_t panels = ceil_quotient(s.O / s.groups, panel_width<T>), each = ceil_quotient(panels, tile_panels<T>);
    const int64_t units = each * s.groups;
    const int64_t work = max_of(1, pixels / pieces * K * panel_width<T> * tile_panels<T>) * units;
    const int64_t wanted = min_of(units, ceil_quotient(conv_tasks, pieces));
    return {gathers, bands, together, pieces, panels, each, units, max_of(1, min_of(wanted, work / blocking.work))};
  }
  // f(group, first, last) for the panels of each group that belong to a share.
  template <class T, class F>
  void for_groups(int64_t share, const F& f) const {
    const int64_t end = (share + 1) * units / shares;
    for (int64_t unit = share * units / shares; unit < end;) {
      const int64_t group = unit / each, stop = min_of(end, (group + 1) * each), before = group * each;
      f(group, (unit - before) * tile_panels<T>, min_of(panels, (stop - before) * tile_panels<T>));
      unit = stop;
    }
  }
};

// Panels [first, last) of a group for pixels [begin, end), gathered.
template <class T>
void conv_gathered(const ConvCall<T>& call, const T* packed, int64_t group, int64_t begin, int64_t end, int64_t first,
                   int64_t last) {
  const ConvShape& s = call.shape;
  T a[gathered_elements + lane_count<T>];
  const int64_t channels = s.C / s.groups, K = s.kernel_rows * s.kernel_columns * channels, filters = s.O / s.groups;
  const T* x_end = call.x + s.N * s.H * s.W * s.C;
  for (int64_t i = begin; i < end;) {
    const int64_t column = i % s.columns, y = i / s.columns % s.rows, image = i / s.columns / s.rows;
    const int64_t count = min_of(end - i, s.columns - column);
    gather_neighbours(s, image, y, column, count, call.x, x_end, group * channels, channels, a + (i - begin) * K);
    i += count;
  }
  const int64_t before = group * filters;
  detail::run_panels<T>(
      {begin, end - begin, 0, 1, filters, K, a, K, nullptr, call.blocking}, first, last, packed,
      [&](int64_t row, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n)
          ORTISAN_INLINE { call.output.epilogue(row, rows, before + col, sums, width, n); },
      [&](int64_t row, int64_t col) ORTISAN_INLINE { call.output.prefetch(row, before + col); });
}

}  // namespace detail

template <class T>
void conv2d(Context& c, const ConvCall<T>& call) {
  const ConvShape& s = call.shape;
  const int64_t channels = s.C / s.groups, filters = s.O / s.groups, K = s.kernel_rows * s.kernel_columns * channels;
  const int64_t pixels = s.N * s.rows * s.columns;
  if (pixels <= 0 || filters <= 0) return;
  const detail::ConvTasks tasks = detail::ConvTasks::of<T>(s, call.blocking);
  c.parallel(tasks.pieces * tasks.shares, [&](int64_t task) {
    const int64_t piece = task / tasks.shares;
    tasks.for_groups<T>(task % tasks.shares, [&](int64_t group, int64_t first, int64_t last) {
      const T* own = call.w + group * packed_elements<T>(K, filters);
      if (tasks.gathers) {
        const int64_t begin = piece * pixels / tasks.pieces, end = (piece + 1) * pixels / tasks.pieces;
        detail::conv_gathered(call, own, group, begin, end, first, last);
      } else {
        const detail::Band band = detail::Band::of(tasks.bands, piece);
        detail::ConvTiles<T>{s,        call.blocking,   call.output, call.x, band, group * channels,
                             channels, group * filters, filters,     own}
            .run(first, last);
      }
    });
  });
}

}  // namespace ortisan
