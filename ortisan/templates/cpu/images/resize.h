// Images with another height and width. Coordinates are float32, step for step as ONNX Runtime computes them.
#pragma once

#include <cmath>
#include <cstdint>

#include "conv_shape.h"
#include "types.h"

namespace ortisan {

// The sizes, and for each axis what the places are divided by; 0 for the quotient of the sizes.
struct ResizeShape {
  int64_t N, H, W, C, rows, columns;
  float scale_y, scale_x;
};

namespace coordinates {

inline float half_pixel(float at, float scale, float, float) { return (at + 0.5f) / scale - 0.5f; }
inline float half_pixel_symmetric(float at, float scale, float have, float want) {
  const float adjustment = want / (scale * have);
  return have / 2 * (1 - adjustment) + (at + 0.5f) / scale - 0.5f;
}
inline float pytorch_half_pixel(float at, float scale, float have, float want) {
  return want > 1 ? half_pixel(at, scale, have, want) : 0.0f;
}
inline float align_corners(float at, float, float have, float want) {
  return want > 1 ? at * (have - 1) / (want - 1) : 0.0f;
}
inline float asymmetric(float at, float scale, float, float) { return at / scale; }
inline float tf_half_pixel_for_nn(float at, float scale, float, float) { return (at + 0.5f) / scale; }

}  // namespace coordinates

namespace roundings {

inline float round_prefer_floor(float at) { return std::ceil(at - 0.5f); }
inline float round_prefer_ceil(float at) { return std::floor(at + 0.5f); }
inline float floor(float at) { return std::floor(at); }
inline float ceil(float at) { return std::ceil(at); }

}  // namespace roundings

namespace detail {

constexpr int64_t resize_columns = 64;  // of a task
constexpr int64_t resize_elements = 16384;

using Coordinate = float (*)(float at, float scale, float have, float want);

inline float place_of(Coordinate f, int64_t at, float scale, int64_t have, int64_t want) {
  const float wanted = static_cast<float>(want), had = static_cast<float>(have);
  return f(static_cast<float>(at), scale != 0.0f ? scale : wanted / had, had, wanted);
}

// Rectangles of the output of at most resize_columns columns: f(band), in parallel.
template <class F>
void for_resized(Context& c, const ResizeShape& s, const F& f) {
  if (s.N <= 0 || s.rows <= 0 || s.columns <= 0 || s.C <= 0 || s.H <= 0 || s.W <= 0) return;
  const int64_t across = ceil_quotient(s.columns, resize_columns), width = ceil_quotient(s.columns, across);
  const int64_t high = max_of(1, resize_elements / max_of(1, width * s.C));
  const Bands bands = {s.N, s.rows, s.columns, ceil_quotient(s.rows, high), across};
  c.parallel(bands.count(), [&](int64_t task) { f(Band::of(bands, task)); });
}

}  // namespace detail

template <class T>
void resize2d_nearest(Context& c, const ResizeShape& s, detail::Coordinate coordinate, float (*rounding)(float),
                      const T* x, T* y) {
  const auto nearest = [=](int64_t at, float scale, int64_t have, int64_t want) {
    const float place = rounding(detail::place_of(coordinate, at, scale, have, want));
    const float last = static_cast<float>(have - 1);
    return static_cast<int64_t>(place < 0.0f ? 0.0f : place > last ? last : place);
  };
  detail::for_resized(c, s, [&](const detail::Band& band) {
    int64_t columns[detail::resize_columns];
    for (int64_t j = band.left; j < band.right; ++j)
      columns[j - band.left] = nearest(j, s.scale_x, s.W, s.columns) * s.C;
    for (int64_t i = band.top; i < band.bottom; ++i) {
      const T* from = x + (band.image * s.H + nearest(i, s.scale_y, s.H, s.rows)) * s.W * s.C;
      T* to = y + ((band.image * s.rows + i) * s.columns + band.left) * s.C;
      for (int64_t j = band.left; j < band.right; ++j, to += s.C) {
        const T* pixel = from + columns[j - band.left];
        for (int64_t k = 0; k < s.C; ++k) to[k] = pixel[k];
      }
    }
  });
}

template <class T>
void resize2d_linear(Context& c, const ResizeShape& s, detail::Coordinate coordinate, const T* x, T* y) {
  using V = compute_t<T>;
  struct Between {
    int64_t low, high;
    V share;  // of the high one
  };
  const auto between = [=](int64_t at, float scale, int64_t have, int64_t want) {
    const float place = detail::place_of(coordinate, at, scale, have, want), last = static_cast<float>(have - 1);
    const float inside = place < 0.0f ? 0.0f : place > last ? last : place;
    const int64_t low = min_of(static_cast<int64_t>(inside), have - 1);
    return Between{low, min_of(low + 1, have - 1), static_cast<V>(inside - static_cast<float>(low))};
  };
  detail::for_resized(c, s, [&](const detail::Band& band) {
    Between columns[detail::resize_columns];
    for (int64_t j = band.left; j < band.right; ++j) {
      Between found = between(j, s.scale_x, s.W, s.columns);
      columns[j - band.left] = {found.low * s.C, found.high * s.C, found.share};
    }
    for (int64_t i = band.top; i < band.bottom; ++i) {
      const Between row = between(i, s.scale_y, s.H, s.rows);
      const T* upper = x + (band.image * s.H + row.low) * s.W * s.C;
      const T* lower = x + (band.image * s.H + row.high) * s.W * s.C;
      T* to = y + ((band.image * s.rows + i) * s.columns + band.left) * s.C;
      for (int64_t j = band.left; j < band.right; ++j, to += s.C) {
        const Between column = columns[j - band.left];
        const V right = column.share, down = row.share, left = V(1) - right, up = V(1) - down;
        const T *a = upper + column.low, *b = upper + column.high, *d = lower + column.low, *e = lower + column.high;
        ORTISAN_INDEPENDENT
        for (int64_t k = 0; k < s.C; ++k) {
          const V above = left * load(a[k]) + right * load(b[k]), below = left * load(d[k]) + right * load(e[k]);
          to[k] = store<T>(up * above + down * below);
        }
      }
    }
  });
}

}  // namespace ortisan
