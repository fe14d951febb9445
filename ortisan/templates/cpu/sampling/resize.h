// Images with another height and width. Coordinates are float32, step for step as ONNX Runtime computes them.
#pragma once

#include <cmath>
#include <cstdint>

#include "conv_shape.h"
#include "cubic.h"
#include "types.h"

namespace ortisan {

// The sizes, what the places are divided by (0 for the quotient of the sizes), and the part that is wanted.
struct ResizeAxis {
  int64_t have, want;
  float scale, start, end;

  float wanted() const { return static_cast<float>(want); }
  float had() const { return static_cast<float>(have); }
  float last() const { return static_cast<float>(have - 1); }
};

struct ResizeShape {
  int64_t N, C;
  ResizeAxis rows, columns;
};

namespace coordinates {

inline float half_pixel(float at, const ResizeAxis& a) { return (at + 0.5f) / a.scale - 0.5f; }
inline float half_pixel_symmetric(float at, const ResizeAxis& a) {
  const float adjustment = a.wanted() / (a.scale * a.had());
  return a.had() / 2 * (1 - adjustment) + (at + 0.5f) / a.scale - 0.5f;
}
inline float pytorch_half_pixel(float at, const ResizeAxis& a) { return a.want > 1 ? half_pixel(at, a) : 0.0f; }
inline float align_corners(float at, const ResizeAxis& a) {
  return a.want > 1 ? at * a.last() / (a.wanted() - 1) : 0.0f;
}
inline float asymmetric(float at, const ResizeAxis& a) { return at / a.scale; }
inline float tf_half_pixel_for_nn(float at, const ResizeAxis& a) { return (at + 0.5f) / a.scale; }
inline float tf_crop_and_resize(float at, const ResizeAxis& a) {
  if (a.want > 1) return a.start * a.last() + at * (a.end - a.start) * a.last() / (a.wanted() - 1);
  return 0.5f * (a.start + a.end) * a.last();
}

}  // namespace coordinates

namespace roundings {

inline float round_prefer_floor(float at) { return std::ceil(at - 0.5f); }
inline float round_prefer_ceil(float at) { return std::floor(at + 0.5f); }
inline float floor(float at) { return std::floor(at); }
inline float ceil(float at) { return std::ceil(at); }

}  // namespace roundings

// How the places of an output are found, and what those outside of the image have when parts of images are wanted.
template <class T>
struct Resizing {
  float (*coordinate)(float at, const ResizeAxis& a);
  bool is_cropped;
  T outside;

  float place_of(int64_t at, ResizeAxis a) const {
    if (a.scale == 0.0f) a.scale = a.wanted() / a.had();
    const bool is_unchanged = a.have == a.want && a.scale == 1.0f && !is_cropped;
    return is_unchanged ? static_cast<float>(at) : coordinate(static_cast<float>(at), a);
  }
  bool is_outside(float place, const ResizeAxis& a) const {
    return is_cropped && !(place >= 0.0f && place <= a.last());
  }
};

namespace detail {

constexpr int64_t resize_columns = 64;  // of a task
constexpr int64_t resize_elements = 16384;

// Pixels of the input along an axis, with weights where there are several.
template <class V, int K>
struct ResizeTaps {
  int64_t at[K];
  V weight[K];
  bool is_outside;
};

inline float clamped(float place, float last) { return !(place > 0.0f) ? 0.0f : place > last ? last : place; }

// Rectangles of the output of at most resize_columns columns: f(band), in parallel.
template <class F>
void for_resized(Context& c, const ResizeShape& s, const F& f) {
  const int64_t rows = s.rows.want, columns = s.columns.want;
  if (s.N <= 0 || rows <= 0 || columns <= 0 || s.C <= 0 || s.rows.have <= 0 || s.columns.have <= 0) return;
  const int64_t across = ceil_quotient(columns, resize_columns), width = ceil_quotient(columns, across);
  const int64_t high = max_of(1, resize_elements / max_of(1, width * s.C));
  const Bands bands = {s.N, rows, columns, ceil_quotient(rows, high), across};
  c.parallel(bands.count(), [&](int64_t task) { f(Band::of(bands, task)); });
}

// Calls pixel(row taps, column taps, image, out) for all pixels of the output, but for those outside of the input.
template <class Taps, class T, class Find, class Pixel>
void resize_pixels(Context& c, const ResizeShape& s, T outside, const Find& find, const T* x, T* y,
                   const Pixel& pixel) {
  for_resized(c, s, [&](const Band& band) {
    Taps columns[resize_columns];
    for (int64_t j = band.left; j < band.right; ++j) columns[j - band.left] = find(j, s.columns);
    const T* image = x + band.image * s.rows.have * s.columns.have * s.C;
    for (int64_t i = band.top; i < band.bottom; ++i) {
      const Taps row = find(i, s.rows);
      T* to = y + ((band.image * s.rows.want + i) * s.columns.want + band.left) * s.C;
      for (int64_t j = band.left; j < band.right; ++j, to += s.C) {
        const Taps& column = columns[j - band.left];
        if (row.is_outside || column.is_outside) {
          for (int64_t k = 0; k < s.C; ++k) to[k] = outside;
        } else {
          pixel(row, column, image, to);
        }
      }
    }
  });
}

// Sums of K x K pixels by their weights.
template <int K, class T, class Find>
void resize_between(Context& c, const ResizeShape& s, T outside, const Find& find, const T* x, T* y) {
  using V = compute_t<T>;
  using Taps = ResizeTaps<V, K>;
  resize_pixels<Taps>(c, s, outside, find, x, y, [&](const Taps& row, const Taps& column, const T* image, T* to) {
    const T* from[K][K];
    for (int i = 0; i < K; ++i) {
      for (int j = 0; j < K; ++j) from[i][j] = image + (row.at[i] * s.columns.have + column.at[j]) * s.C;
    }
    ORTISAN_INDEPENDENT
    for (int64_t k = 0; k < s.C; ++k) {
      V sum = V(0);
      ORTISAN_UNROLL(4)
      for (int i = 0; i < K; ++i) {
        V across = V(0);
        ORTISAN_UNROLL(4)
        for (int j = 0; j < K; ++j) across += column.weight[j] * load(from[i][j][k]);
        sum += row.weight[i] * across;
      }
      to[k] = store<T>(sum);
    }
  });
}

}  // namespace detail

template <class T>
void resize2d_nearest(Context& c, const ResizeShape& s, const Resizing<T>& how, float (*rounding)(float), const T* x,
                      T* y) {
  using Taps = detail::ResizeTaps<float, 1>;
  const auto nearest = [&](int64_t at, const ResizeAxis& a) {
    const float place = how.place_of(at, a);
    return Taps{{static_cast<int64_t>(detail::clamped(rounding(place), a.last()))}, {1.0f}, how.is_outside(place, a)};
  };
  detail::resize_pixels<Taps>(c, s, how.outside, nearest, x, y,
                              [&](const Taps& row, const Taps& column, const T* image, T* to) {
                                const T* from = image + (row.at[0] * s.columns.have + column.at[0]) * s.C;
                                for (int64_t k = 0; k < s.C; ++k) to[k] = from[k];
                              });
}

template <class T>
void resize2d_linear(Context& c, const ResizeShape& s, const Resizing<T>& how, const T* x, T* y) {
  using V = compute_t<T>;
  const auto between = [&](int64_t at, const ResizeAxis& a) {
    const float place = how.place_of(at, a), inside = detail::clamped(place, a.last());
    const int64_t low = min_of(static_cast<int64_t>(inside), a.have - 1);
    const V share = static_cast<V>(inside - static_cast<float>(low));
    return detail::ResizeTaps<V, 2>{
        {low, min_of(low + 1, a.have - 1)}, {V(1) - share, share}, how.is_outside(place, a)};
  };
  detail::resize_between<2>(c, s, how.outside, between, x, y);
}

// With `excludes_outside`, pixels outside of the image have no weight, and the others all of it.
template <class T>
void resize2d_cubic(Context& c, const ResizeShape& s, const Resizing<T>& how, float cubic, bool excludes_outside,
                    const T* x, T* y) {
  using V = compute_t<T>;
  const auto around = [&](int64_t at, const ResizeAxis& a) {
    const float place = how.place_of(at, a);
    // What is that far outside reads the last pixels only.
    const float near = place < -4.0f ? -4.0f : place > a.last() + 4.0f ? a.last() + 4.0f : place;
    const float before = std::floor(near);
    detail::ResizeTaps<V, 4> taps = {{}, {}, how.is_outside(place, a)};
    detail::cubic_weights<V>(static_cast<V>(near - before), static_cast<V>(cubic), taps.weight);
    V total = V(0);
    for (int i = 0; i < 4; ++i) {
      const int64_t pixel = static_cast<int64_t>(before) - 1 + i;
      taps.at[i] = max_of(0, min_of(pixel, a.have - 1));
      if (excludes_outside && taps.at[i] != pixel) taps.weight[i] = V(0);
      total += taps.weight[i];
    }
    for (int i = 0; excludes_outside && i < 4; ++i) taps.weight[i] /= total;
    return taps;
  };
  detail::resize_between<4>(c, s, how.outside, around, x, y);
}

}  // namespace ortisan
