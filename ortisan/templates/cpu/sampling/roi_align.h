// Regions of images in bins, each made of samples between pixels.
#pragma once

#include <cmath>
#include <cstdint>

#include "pieces.h"
#include "types.h"

namespace ortisan {

// Images [N,H,W,C], `regions` of four numbers, outputs [regions,rows,columns,C]. `samples` of a bin along an axis; 0 for one a pixel.
struct RegionShape {
  int64_t N, H, W, C, regions, rows, columns, samples;
  bool half_pixel;
};

namespace detail {

// The bins of a region along an axis.
template <class T>
struct RegionAxis {
  T start, width;
  T count;  // of samples, which may be more than an integer holds
  int64_t size;  // of the image

  static RegionAxis of(T low, T high, T scale, const RegionShape& s, int64_t bins, int64_t size) {
    const T shift = s.half_pixel ? T(0.5) : T(0), start = low * scale - shift, end = high * scale - shift;
    const T length = s.half_pixel || end - start > T(1) ? end - start : T(1), width = length / static_cast<T>(bins);
    const T count = s.samples > 0 ? static_cast<T>(s.samples) : std::ceil(width);
    return {start, width, count > T(0) ? count : T(0), size};
  }
  T place(int64_t bin, T sample) const {
    return start + static_cast<T>(bin) * width + (sample + T(0.5)) * width / count;
  }
  bool is_inside(T at) const { return at >= T(-1) && at <= static_cast<T>(size); }
};

// Two neighbours and their weights.
template <class T>
struct RegionSample {
  int64_t at[2];
  T weight[2];

  static RegionSample of(const RegionAxis<T>& axis, T place) {
    const T last = static_cast<T>(axis.size - 1), at = place < T(0) ? T(0) : place > last ? last : place;
    const int64_t low = static_cast<int64_t>(at);
    const T share = at - static_cast<T>(low);
    return {{low, min_of(low + 1, axis.size - 1)}, {T(1) - share, share}};
  }
};

// Calls f(sample) for the samples of a bin that are inside of the image; returns whether there are others.
template <class T, class F>
bool for_samples(const RegionAxis<T>& axis, int64_t bin, const F& f) {
  if (!(axis.count < T(1e9))) return true;
  // Without a given number of samples they are at most a pixel apart, so few are inside of the image.
  const T step = axis.width / axis.count, first = (T(-2) - axis.place(bin, T(0))) / step;
  bool others = step > T(0) && first > T(0);
  for (T k = others ? std::floor(first) : T(0); k < axis.count; k += T(1)) {
    const T place = axis.place(bin, k);
    if (axis.is_inside(place)) {
      f(RegionSample<T>::of(axis, place));
    } else {
      others = true;
      if (step > T(0) && place > T(0)) break;
    }
  }
  return others;
}

struct RegionMean {
  template <class T>
  static void add(T& total, T a, T b, T d, T e, bool) {
    total += a + b + d + e;
  }
};

struct RegionMax {
  template <class T>
  static void add(T& total, T a, T b, T d, T e, bool is_first) {
    const T upper = a > b ? a : b, lower = d > e ? d : e, largest = upper > lower ? upper : lower;
    total = is_first || largest > total ? largest : total;
  }
};

template <class Fold, class T>
void region_bin(const RegionAxis<T>& down, const RegionAxis<T>& across, int64_t i, int64_t j, int64_t W, int64_t C,
                const T* image, T* out) {
  for (int64_t k = 0; k < C; ++k) out[k] = T(0);
  if (!(down.count > T(0) && across.count > T(0))) return;
  bool is_first = true, beyond = false;
  beyond |= for_samples(down, i, [&](const RegionSample<T>& row) {
    beyond |= for_samples(across, j, [&](const RegionSample<T>& column) {
      const T* upper = image + row.at[0] * W * C;
      const T* lower = image + row.at[1] * W * C;
      const T *a = upper + column.at[0] * C, *b = upper + column.at[1] * C;
      const T *d = lower + column.at[0] * C, *e = lower + column.at[1] * C;
      const T wa = row.weight[0] * column.weight[0], wb = row.weight[0] * column.weight[1];
      const T wd = row.weight[1] * column.weight[0], we = row.weight[1] * column.weight[1];
      ORTISAN_INDEPENDENT
      for (int64_t k = 0; k < C; ++k) Fold::add(out[k], wa * a[k], wb * b[k], wd * d[k], we * e[k], is_first);
      is_first = false;
    });
  });
  // Samples outside of the image are 0.
  if (beyond && !is_first) {
    for (int64_t k = 0; k < C; ++k) Fold::add(out[k], T(0), T(0), T(0), T(0), false);
  }
}

template <class Fold, class T, class Finish>
void roi_align(Context& c, const RegionShape& s, T scale, const T* x, const T* rois, const int64_t* indices, T* y,
               const char* message, const Finish& finish) {
  parallel_ranges(c, s.regions * s.rows, s.columns * s.C * 16, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t region = task / s.rows, i = task % s.rows, index = indices[region];
      if (index < 0 || index >= s.N) return c.fail(message);
      const T* roi = rois + region * 4;
      const RegionAxis<T> across = RegionAxis<T>::of(roi[0], roi[2], scale, s, s.columns, s.W);
      const RegionAxis<T> down = RegionAxis<T>::of(roi[1], roi[3], scale, s, s.rows, s.H);
      for (int64_t j = 0; j < s.columns; ++j) {
        T* out = y + (task * s.columns + j) * s.C;
        region_bin<Fold>(down, across, i, j, s.W, s.C, x + index * s.H * s.W * s.C, out);
        finish(out, down.count * across.count);
      }
    }
  });
}

}  // namespace detail

template <class T>
void roi_align_mean(Context& c, const RegionShape& s, T scale, const T* x, const T* rois, const int64_t* indices, T* y,
                    const char* message) {
  detail::roi_align<detail::RegionMean>(c, s, scale, x, rois, indices, y, message, [&](T* out, T count) {
    for (int64_t k = 0; k < s.C; ++k) out[k] /= count > T(1) ? count : T(1);
  });
}

template <class T>
void roi_align_max(Context& c, const RegionShape& s, T scale, const T* x, const T* rois, const int64_t* indices, T* y,
                   const char* message) {
  detail::roi_align<detail::RegionMax>(c, s, scale, x, rois, indices, y, message, [](T*, T) {});
}

}  // namespace ortisan
