// A depthwise convolution with the 1 x 1 convolution before it, the one behind it, or both, as one kernel: what is between them
// stays in the cache.
//
//   x [H,W,depth] --expansion--> rows of an image [W,C] --taps--> a row [columns,C] --projection--> output [rows,columns,filters]
//
// A task is a strip of the output. It goes down the strip: it multiplies the rows of the image between that the next row of the
// output reads, keeps the latest in a ring, convolves them to a row, and multiplies that. Strips multiply the rows that two of
// them read twice, so there are few. Sums are added up as in gemm.h and depthwise.h, so the bits are the same as theirs.
#pragma once

#include <cstdint>

#include "depthwise.h"
#include "gemm.h"
#include "stage.h"

namespace ortisan {

// What the image is multiplied by first: x[pixels, depth] by panels, whose columns are the channels of the convolution.
template <class T>
struct Expansion {
  int64_t depth;
  const T* packed;
  Stage<T> stage;
};

// What its result is multiplied by: panels of `filters` columns.
template <class T>
struct Projection {
  int64_t filters;
  const T* packed;
  Stage<T> stage;  // of the convolution
};

// `shape` is that of the convolution. There is an expansion, a projection or both; `output` takes what comes last.
template <class T>
struct BlockCall {
  ConvShape shape;
  const T* x;
  const T* taps;
  const Expansion<T>* expansion;
  const Projection<T>* projection;
  ConvOutput<T> output;
};

namespace detail {

template <class T>
constexpr int64_t block_elements = (192 << 10) / int64_t(sizeof(T));  // of the ring and the row that a task keeps
constexpr int64_t block_pixels = 64;  // that are multiplied at a time, where rows of the image are short
constexpr int64_t block_tasks = 16;
constexpr int64_t block_again = 24;  // a strip may multiply one row again for so many of the image

template <class T>
constexpr int64_t in_panels(int64_t channels) {
  return ceil_quotient(channels, panel_width<T>) * panel_width<T>;
}

// How an image is divided: by its sizes alone.
struct BlockTasks {
  int64_t strips, across;

  template <class T>
  static constexpr BlockTasks of(const BlockCall<T>& call) {
    const ConvShape& s = call.shape;
    const int64_t width = in_panels<T>(s.C), row = call.projection != nullptr ? s.C : 0;
    const int64_t ring = call.expansion != nullptr ? s.kernel_rows * width : 0;
    // `columns` of the output need (columns - 1) * stride + kernel columns of the image.
    const int64_t left = block_elements<T> - ring * (s.kernel_columns - s.stride_x);
    const int64_t columns = max_of(1, left / max_of(1, ring * s.stride_x + row));
    const int64_t again = max_of(1, s.kernel_rows - s.stride_y);
    const int64_t few = max_of(2, s.H / (block_again * again) / 2 * 2);
    const int64_t strips = call.expansion != nullptr ? min_of(few, block_tasks) : block_tasks;
    return {max_of(1, min_of(strips, s.rows)), ceil_quotient(s.columns, columns)};
  }
  constexpr int64_t count() const { return strips * across; }
};

template <class T>
struct BlockStrip {
  static constexpr int64_t NR = panel_width<T>;

  const BlockCall<T>& call;
  const DepthwiseTile<T>* tiles;
  Band band;

  void run() const {
    const ConvShape& s = call.shape;
    T memory[block_elements<T>];
    const int64_t across = band.right - band.left;
    T* const row = memory;
    T* const ring = row + (call.projection != nullptr ? across * s.C : 0);
    if (call.expansion == nullptr) {
      const Source image = {call.x + band.image * s.H * s.W * s.C, s.W * s.C, s.C, 0};
      for (int64_t y = band.top; y < band.bottom; ++y) finish_row(y, image, row);
      return;
    }
    const int64_t width = in_panels<T>(s.C), left = max_of(0, s.input_column(band.left, 0));
    const int64_t columns = max_of(1, min_of(s.W, s.input_column(band.right - 1, s.kernel_columns - 1) + 1) - left);
    const int64_t line = columns * width, capacity = (memory + block_elements<T> - ring) / line;
    const int64_t together =
        columns < s.W ? 1 : max_of(1, min_of(block_pixels / columns, capacity - s.kernel_rows + 1));
    const Source kept = {ring - left * width, line, width, min_of(capacity, s.kernel_rows + together - 1)};
    const int64_t end = min_of(s.H, s.input_row(band.bottom - 1, s.kernel_rows - 1) + 1);
    int64_t next = max_of(0, s.input_row(band.top, 0));
    for (int64_t y = band.top; y < band.bottom; ++y) {
      const int64_t top = s.input_row(y, 0), bottom = min_of(end, top + s.kernel_rows);
      next = max_of(next, top);
      while (next < bottom) {
        const int64_t place = next % kept.rows, free = min_of(end, max_of(0, top) + kept.rows) - next;
        const int64_t count = min_of(min_of(together, kept.rows - place), free);
        expand(((band.image * s.H + next) * s.W + left) * call.expansion->depth, count * columns, ring + place * line);
        next += count;
      }
      finish_row(y, kept, row);
    }
  }

 private:
  // Where the convolution reads: pixel (y, column) at x + y * line + column * step; with `rows`, y % rows for y.
  struct Source {
    const T* x;
    int64_t line, step, rows;
  };

  static void multiply(int64_t rows, int64_t panels, int64_t n, int64_t K, const T* a, const T* b, T* sums) {
    if constexpr (tile_panels<T> > 1) {
      if (panels > 1) return add_panels<T>(rows, panels, K, a, K, b, K * NR, sums, false, {}, n);
    }
    add_tile<T>(rows, K, a, K, b, NR, sums, NR, false, {}, n);
  }

  // a[pixels, K] times all panels of N columns, clamped to `to`, or f(first, rows, col, sums, width, n) for its tiles.
  template <class F>
  static void for_tiles(int64_t pixels, int64_t K, int64_t N, const T* a, const T* packed, const Clamp<T>& clamp, T* to,
                        int64_t ld, const F& f) {
    T sums[tile_rows<T> * NR * tile_panels<T>];
    const int64_t all = ceil_quotient(N, NR);
    for (int64_t p = 0; p < all;) {
      const int64_t panels = all - p < tile_panels<T> ? 1 : tile_panels<T>, n = min_of(panels * NR, N - p * NR);
      const int64_t count = ceil_quotient(pixels, rows_over<T>(panels));
      for (int64_t t = 0; t < count; ++t) {
        const int64_t r = t * pixels / count, height = (t + 1) * pixels / count - r;
        if constexpr (tile_of<T>::clamps) {
          if (clamp.bias != nullptr && n == panels * NR) {
            add_clamped<T>(height, panels, K, a + r * K, K, packed + p * K * NR, K * NR, to + r * ld + p * NR, ld, {},
                           clamp.from(p * NR));
            continue;
          }
        }
        multiply(height, panels, n, K, a + r * K, packed + p * K * NR, sums);
        f(r, height, p * NR, sums, panels * NR, n);
      }
      p += panels;
    }
  }

  // The image between, for `count` pixels from element x of the input on.
  void expand(int64_t x, int64_t count, T* to) const {
    const Expansion<T>& e = *call.expansion;
    const int64_t ld = in_panels<T>(call.shape.C);
    for_tiles(count, e.depth, call.shape.C, call.x + x, e.packed, e.stage.clamp, to, ld,
              [&](int64_t first, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n)
                  ORTISAN_INLINE { e.stage.finish(to + first * ld + col, ld, rows, col, sums, width, n); });
  }

  // Row y of the output.
  void finish_row(int64_t y, const Source& from, T* row) const {
    const ConvShape& s = call.shape;
    const int64_t pixel = (band.image * s.rows + y) * s.columns + band.left, across = band.right - band.left;
    if (call.projection != nullptr) {
      const Stage<T>& stage = call.projection->stage;
      convolve(y, from, stage.clamp, row,
               [&](int64_t first, int64_t pixels, int64_t channel, const T* sums, int64_t n) {
                 stage.finish(row + first * s.C + channel, s.C, pixels, channel, sums, n, n);
               });
    } else {
      T* const out = call.output.at(pixel * s.C);
      convolve(y, from, call.output.clamp, out,
               [&](int64_t first, int64_t pixels, int64_t channel, const T* sums, int64_t n) {
                 call.output.epilogue(pixel + first, pixels, channel, sums, n, n);
               });
    }
    if (call.projection == nullptr) return;
    const int64_t N = call.projection->filters;
    for_tiles(across, s.C, N, row, call.projection->packed, call.output.clamp, call.output.at(pixel * N), N,
              [&](int64_t first, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n)
                  ORTISAN_INLINE { call.output.epilogue(pixel + first, rows, col, sums, width, n); });
  }

  // Row y of the convolution: clamped to `to`, or f(first, pixels, channel, sums, channels) for its tiles.
  template <class F>
  void convolve(int64_t y, const Source& from, const Clamp<T>& clamp, T* to, const F& f) const {
    const ConvShape& s = call.shape;
    constexpr int64_t lanes = vector_bytes / int64_t(sizeof(T));
    T sums[depthwise_pixels * depthwise_channels];
    const int64_t top = s.input_row(y, 0), across = band.right - band.left,
                  count = ceil_quotient(across, depthwise_pixels);
    const int64_t vectors = ceil_quotient(s.C, lanes), blocks = ceil_quotient(s.C, depthwise_channels);
    int64_t low = 0, high = s.kernel_rows;
    while (low < high && top + low < 0) ++low;
    while (low < high && top + high > s.H) --high;
    const int64_t place = from.rows == 0 ? top : (top % from.rows + from.rows) % from.rows;
    const int64_t turn = from.rows == 0 ? s.kernel_rows : from.rows - place;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t channel = block * vectors / blocks * lanes;
      const int64_t channels = min_of(s.C, (block + 1) * vectors / blocks * lanes) - channel;
      for (int64_t t = 0; t < count; ++t) {
        const int64_t first = t * across / count, pixels = (t + 1) * across / count - first;
        const int64_t column = s.input_column(band.left + first, 0);
        const DepthwiseSource<T> source = {from.x + place * from.line + column * from.step + channel,
                                           from.line,
                                           from.step,
                                           low,
                                           high,
                                           -column,
                                           s.W - column,
                                           call.taps + channel,
                                           s.C,
                                           turn,
                                           from.rows * from.line};
        if (clamp.bias != nullptr) {
          tiles[pixels - 1](source, channels, to + first * s.C + channel, s.C, clamp.from(channel));
        } else {
          tiles[pixels - 1](source, channels, sums, channels, clamp);
          f(first, pixels, channel, sums, channels);
        }
      }
    }
  }
};

}  // namespace detail

// Filters have tiles: see `depthwise_tiles`.
template <class T>
void depthwise_block(Context& c, const BlockCall<T>& call) {
  using namespace detail;
  const ConvShape& s = call.shape;
  if (s.N * s.rows * s.columns <= 0) return;
  const BlockTasks tasks = BlockTasks::of(call);
  const DepthwiseTile<T>* tiles =
      depthwise_tiles<T>(s, call.projection != nullptr ? call.projection->stage.clamp : call.output.clamp);
  c.parallel(s.N * tasks.count(), [&](int64_t task) {
    const int64_t j = task % tasks.across, i = task / tasks.across % tasks.strips;
    const Band band = {task / tasks.count(), i * s.rows / tasks.strips, (i + 1) * s.rows / tasks.strips,
                       j * s.columns / tasks.across, (j + 1) * s.columns / tasks.across};
    BlockStrip<T>{call, tiles, band}.run();
  });
}

}  // namespace ortisan
