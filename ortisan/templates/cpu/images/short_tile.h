// The register tile of a convolution whose filters have short rows (the first layer's, with 3 channels): the sums of up to
// tile_rows neighbours in a row of the output over up to tile_panels panels stay in registers over all rows of the filters, and
// nothing is gathered. Sums are added up in the order of k.
#pragma once

#include <cstdint>

#include "clamp.h"
#include "lanes.h"
#include "tile.h"

namespace ortisan::detail {

// What a pixel reads with row i of the filters is at x + i * line, `run` elements; its neighbour is `step` further.
template <class T>
struct ShortRows {
  const T* x;
  int64_t line, step, run;
  int64_t first, last;  // rows of the filters, that meet the image
  const T* b;
  int64_t panel_stride;
};

// Writes sums to `out`, rows `width` apart; with Clamps, what the clamp makes of them.
template <class T, int64_t Rows, int64_t Panels, bool Clamps>
[[gnu::noinline]] void add_short_tile(const ShortRows<T>& rows, T* out, int64_t width, const Clamp<T>& clamp) {
  constexpr int64_t NR = panel_width<T>, each = NR / lane_count<T>, V = Panels * each;
  const ShortRows<T> s = rows;
  lanes_t<T> acc[Rows][V] = {};
  for (int64_t i = s.first; i < s.last; ++i) {
    for (int64_t k = 0; k < s.run; ++k) {
      const T* a = s.x + i * s.line + k;
      const T* b = s.b + (i * s.run + k) * NR;
      lanes_t<T> factors[V];
      ORTISAN_UNROLL(8)
      for (int64_t v = 0; v < V; ++v) {
        factors[v] = load_lanes(b + v / each * s.panel_stride + v % each * lane_count<T>);
      }
      ORTISAN_UNROLL(8)
      for (int64_t r = 0; r < Rows; ++r, a += s.step) {
        keep_in_register(a);
        ORTISAN_UNROLL(8)
        for (int64_t v = 0; v < V; ++v) acc[r][v] += *a * factors[v];
      }
    }
  }
  const lanes_t<T> low = clamp.low - lanes_t<T>{}, high = clamp.high - lanes_t<T>{};
  lanes_t<T> bias[V] = {};
  if constexpr (Clamps) {
    ORTISAN_UNROLL(8)
    for (int64_t v = 0; v < V; ++v) bias[v] = load_lanes(clamp.bias + v * lane_count<T>);
  }
  ORTISAN_UNROLL(8)
  for (int64_t r = 0; r < Rows; ++r) {
    ORTISAN_UNROLL(8)
    for (int64_t v = 0; v < V; ++v) {
      if constexpr (Clamps) {
        const lanes_t<T> total = acc[r][v] + bias[v], raised = total < low ? low : total;
        acc[r][v] = raised > high ? high : raised;
      }
      __builtin_memcpy(out + r * width + v * lane_count<T>, &acc[r][v], sizeof(lanes_t<T>));
    }
  }
}

template <class T, int64_t Rows, int64_t Panels>
inline void add_short_rows(int64_t count, const ShortRows<T>& rows, T* out, int64_t width, const Clamp<T>& clamp) {
  if (count == Rows) {
    if (clamp.bias != nullptr) return add_short_tile<T, Rows, Panels, true>(rows, out, width, clamp);
    return add_short_tile<T, Rows, Panels, false>(rows, out, width, clamp);
  }
  if constexpr (Rows > 1) add_short_rows<T, Rows - 1, Panels>(count, rows, out, width, clamp);
}

// out[count][width] for `panels` = 1 or tile_panels<T>, all of whose columns are written.
template <class T>
inline void add_short(int64_t count, int64_t panels, const ShortRows<T>& rows, T* out, int64_t width,
                      const Clamp<T>& clamp) {
  if constexpr (tile_panels<T> > 1) {
    if (panels > 1) return add_short_rows<T, tile_rows<T>, tile_panels<T>>(count, rows, out, width, clamp);
  }
  add_short_rows<T, tile_rows<T>, 1>(count, rows, out, width, clamp);
}

}  // namespace ortisan::detail
