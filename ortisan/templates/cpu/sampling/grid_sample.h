// Images read at places that a grid gives, from -1 to 1 along both axes.
#pragma once

#include <cmath>
#include <cstdint>

#include "cubic.h"
#include "pieces.h"
#include "types.h"

namespace ortisan {

// Images [N,H,W,C], grids [N,rows,columns,2].
struct GridShape {
  int64_t N, H, W, C, rows, columns;
};

enum class GridPadding { zeros, border, reflection };

namespace detail {

// A place further out is as good as this one, and can be an integer.
template <class T>
constexpr T grid_limit = T(4194304);

template <class T, GridPadding padding, bool align_corners>
struct GridAxis {
  int64_t size;

  T place_of(T at) const {
    const T n = static_cast<T>(size);
    const T place = align_corners ? (at + T(1)) * T(0.5) * (n - T(1)) : ((at + T(1)) * n - T(1)) * T(0.5);
    if (!(place > -grid_limit<T>)) return place != place ? T(-1) : -grid_limit<T>;
    return place < grid_limit<T> ? place : grid_limit<T>;
  }

  // Where a place is after the padding; what counts as 0 stays outside.
  T moved(T place) const {
    const T last = static_cast<T>(size - 1);
    if constexpr (padding == GridPadding::border) return place < T(0) ? T(0) : place > last ? last : place;
    if constexpr (padding == GridPadding::reflection) {
      const T low = align_corners ? T(0) : T(-0.5), high = last - low;
      if (place >= low && place <= high) return place;
      if (!(high > low)) return T(0);
      const T period = T(2) * (high - low), rest = std::fmod(place - low, period);
      const T far = rest < T(0) ? rest + period : rest;
      return low + (far < period - far ? far : period - far);
    }
    return place;
  }

  // The pixel at a whole place, or -1 for one that counts as 0.
  int64_t pixel(T place) const {
    if constexpr (padding == GridPadding::zeros)
      return place >= T(0) && place < static_cast<T>(size) ? static_cast<int64_t>(place) : -1;
    return max_of(0, min_of(static_cast<int64_t>(moved(place)), size - 1));
  }
};

// Pixels along an axis and their weights.
template <class T, int K>
struct GridTaps {
  int64_t at[K];
  T weight[K];
};

struct GridNearest {
  static constexpr int count = 1;
  template <class T, class Axis>
  static GridTaps<T, 1> find(const Axis& axis, T place) {
    return {{axis.pixel(std::nearbyint(place))}, {T(1)}};
  }
};

struct GridLinear {
  static constexpr int count = 2;
  template <class T, class Axis>
  static GridTaps<T, 2> find(const Axis& axis, T place) {
    const T inside = axis.moved(place), low = std::floor(inside), share = inside - low;
    return {{axis.pixel(low), axis.pixel(low + T(1))}, {T(1) - share, share}};
  }
};

struct GridCubic {
  static constexpr int count = 4;
  template <class T, class Axis>
  static GridTaps<T, 4> find(const Axis& axis, T place) {
    const T low = std::floor(place);
    GridTaps<T, 4> taps;
    cubic_weights(place - low, T(-0.75), taps.weight);
    for (int i = 0; i < 4; ++i) taps.at[i] = axis.pixel(low + static_cast<T>(i - 1));
    return taps;
  }
};

template <class Mode, class T, GridPadding padding, bool align_corners>
void grid_sample(Context& c, const GridShape& s, const T* x, const T* grid, T* y) {
  using Axis = GridAxis<T, padding, align_corners>;
  const Axis down = {s.H}, across = {s.W};
  parallel_ranges(c, s.N * s.rows * s.columns, Mode::count * Mode::count * (s.C + 4), [&](int64_t begin, int64_t end) {
    for (int64_t place = begin; place < end; ++place) {
      const auto column = Mode::find(across, across.place_of(grid[2 * place]));
      const auto row = Mode::find(down, down.place_of(grid[2 * place + 1]));
      const T* image = x + place / (s.rows * s.columns) * s.H * s.W * s.C;
      T* to = y + place * s.C;
      for (int64_t k = 0; k < s.C; ++k) to[k] = T(0);
      for (int i = 0; i < Mode::count; ++i) {
        for (int j = 0; j < Mode::count; ++j) {
          if (row.at[i] < 0 || column.at[j] < 0) continue;
          const T* from = image + (row.at[i] * s.W + column.at[j]) * s.C;
          const T weight = row.weight[i] * column.weight[j];
          ORTISAN_INDEPENDENT
          for (int64_t k = 0; k < s.C; ++k) to[k] += weight * from[k];
        }
      }
    }
  });
}

}  // namespace detail

template <class T, GridPadding padding, bool align_corners>
void grid_sample_nearest(Context& c, const GridShape& s, const T* x, const T* grid, T* y) {
  detail::grid_sample<detail::GridNearest, T, padding, align_corners>(c, s, x, grid, y);
}

template <class T, GridPadding padding, bool align_corners>
void grid_sample_linear(Context& c, const GridShape& s, const T* x, const T* grid, T* y) {
  detail::grid_sample<detail::GridLinear, T, padding, align_corners>(c, s, x, grid, y);
}

template <class T, GridPadding padding, bool align_corners>
void grid_sample_cubic(Context& c, const GridShape& s, const T* x, const T* grid, T* y) {
  detail::grid_sample<detail::GridCubic, T, padding, align_corners>(c, s, x, grid, y);
}

}  // namespace ortisan
