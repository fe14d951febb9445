// What a blocking comes to: the tasks of a product, and the loop over a macro tile. gemm.h runs by it, tuning asks it.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "blocking.h"
#include "pieces.h"
#include "tile.h"
#include "types.h"

namespace ortisan {
namespace detail {

constexpr int64_t largest_band = 256;
constexpr int64_t depth_in_thin_tiles = 96;  // k per block where two panels are read by two tiles
constexpr int64_t depth_that_fetches = 128;  // k below which fetching outputs takes longer than it saves
constexpr int64_t depth_converted = 256;  // k per block of types that are converted to compute with

// Panels that are worked on together: those of a tile. Few rows over one panel have too few independent accumulators to hide the
// latency of an FMA, and several streams reach higher bandwidth. A panel of four vectors has enough accumulators from two rows
// on. Up to six rows are two thin tiles, one after the other over blocks of the panels that stay in the L1 cache.
template <class T, class W = T>
constexpr int64_t panels_at_once(int64_t rows) {
  using P = factor_t<T, W>;
  constexpr int64_t thin = TileThin<P>::rows;
  if (!std::is_same_v<T, P>) return 1;
  if (!std::is_same_v<W, P>) return rows > 1 ? tile_panels<P> : 4;
  if (rows > (tile_panels<P> > 1 ? 1 : vector_bytes == 32 ? 2 * thin : thin)) return tile_panels<P>;
  return vector_bytes == 16 ? (rows == 1 ? 2 : 1) : (rows == 1 ? 4 : 2);
}

// The loop over a macro tile of `rows` rows and `panels` panels.
struct TileLoop {
  int64_t tiles;  // register tiles, one below the other
  int64_t depth;  // k per block
  bool own_depth;  // whether that is the kernel's own, and not the blocking's
  bool prefetch;  // whether they fetch what is read next

  template <class T, class W = T>
  static constexpr TileLoop of(int64_t rows, int64_t panels, const Blocking& blocking) {
    using P = factor_t<T, W>;
    constexpr bool converts = !std::is_same_v<W, P>;
    const int64_t tiles = ceil_quotient(rows, rows_over<P>(panels));
    const bool thin = panels > tile_panels<P>, many_thin = thin && tiles > 1;
    const bool in_part = converts && !thin;
    const int64_t depth = in_part ? depth_converted / panels : many_thin ? depth_in_thin_tiles : blocking.depth;
    // A single tile reads B at the speed of memory, where the hardware's own prefetching does best.
    const bool prefetch = tile_of<P>::prefetches && blocking.prefetch && tiles > 1 && !thin;
    return {tiles, depth + depth % 2 * (std::is_same_v<W, bfloat16> ? 1 : 0), in_part || many_thin, prefetch};
  }
};

// Bands of nearly equal height, and groups of panels, that make the tasks of a product. Panels that are worked on together
// are never in two groups.
struct Tasks {
  int64_t M, panels, bands, unit, groups;

  template <class T, class W = T>
  static constexpr Tasks of(int64_t M, int64_t K, int64_t panels, const Blocking& blocking) {
    const int64_t bands = ceil_quotient(M, min_of(blocking.band, largest_band));
    const int64_t unit = panels_at_once<T, W>(M / bands), units = ceil_quotient(panels, unit);
    const int64_t unit_work = max_of(1, M / bands * K * panel_width<T> * unit);
    const int64_t group = min_of(units, max_of(1, ceil_quotient(blocking.work, unit_work)));
    return {M, panels, bands, unit, ceil_quotient(units, group)};
  }
  constexpr int64_t count() const { return bands * groups; }
  constexpr int64_t first_row(int64_t task) const {
    return task / groups * (M / bands) + min_of(task / groups, M % bands);
  }
  constexpr int64_t rows(int64_t task) const { return M / bands + (task / groups < M % bands ? 1 : 0); }
  // The panels are shared out evenly.
  constexpr int64_t first_panel(int64_t task) const {
    return task % groups * ceil_quotient(panels, unit) / groups * unit;
  }
  constexpr int64_t last_panel(int64_t task) const {
    return min_of(panels, (task % groups + 1) * ceil_quotient(panels, unit) / groups * unit);
  }
};

}  // namespace detail

// The launch of a product of M rows and so many panels: blockings with the same launch run the same instructions.
template <class T, class W = T>
constexpr Launch launch(int64_t M, int64_t K, int64_t panels, const Blocking& blocking) {
  const detail::Tasks tasks = detail::Tasks::of<T, W>(M, K, panels, blocking);
  Launch result = {0, tasks.bands, tasks.groups, false};
  const int64_t last_band = (tasks.bands - 1) * tasks.groups;
  for (const int64_t band : {int64_t(0), last_band}) {
    const int64_t rows = tasks.rows(band), at_once = detail::panels_at_once<T, W>(rows);
    for (int64_t task = band; task < band + tasks.groups; ++task) {
      const int64_t own = tasks.last_panel(task) - tasks.first_panel(task);
      for (const int64_t together : {at_once, int64_t(1)}) {
        if (together == 1 ? own % at_once == 0 && at_once > 1 : own < at_once) continue;
        const detail::TileLoop loop = detail::TileLoop::of<T, W>(rows, together, blocking);
        if (!loop.own_depth) result.depth = min_of(blocking.depth, K);
        result.prefetch = result.prefetch || loop.prefetch;
      }
    }
  }
  return result;
}

}  // namespace ortisan
