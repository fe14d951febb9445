// The sizes of a convolution over images with the channels last, and how its output is cut into pieces.
#pragma once

#include <cstdint>

#include "pieces.h"

namespace ortisan {

// Input [N,H,W,C], filters [O,kernel_rows,kernel_columns,C/groups], output [N,rows,columns,O].
struct ConvShape {
  int64_t N, H, W, C;
  int64_t rows, columns, O;
  int64_t kernel_rows, kernel_columns, stride_y, stride_x, top, left, dilation_y, dilation_x, groups;

  // The row of the input that row y of the output reads with row i of the filters; it may be outside of the image.
  constexpr int64_t input_row(int64_t y, int64_t i) const { return y * stride_y - top + i * dilation_y; }
  constexpr int64_t input_column(int64_t x, int64_t j) const { return x * stride_x - left + j * dilation_x; }
  // The first column of the output whose column j of the filters is right of `column`, which may be negative.
  constexpr int64_t first_column(int64_t j, int64_t column) const {
    const int64_t distance = column - input_column(0, j);
    return distance <= 0 ? 0 : ceil_quotient(distance, stride_x);
  }
  // Of the columns [begin, end) of the output, those whose column j of the filters meets the image.
  constexpr void clip(int64_t j, int64_t& begin, int64_t& end) const {
    begin = max_of(begin, first_column(j, 0));
    end = min_of(end, first_column(j, W));
  }
  constexpr bool is_inside(int64_t y, int64_t i) const { return uint64_t(input_row(y, i)) < uint64_t(H); }
};

namespace detail {

// Rectangles of the output, of about `pixels` each, that never span two images.
struct Bands {
  int64_t images, rows, columns;  // of the output
  int64_t down, across;  // rectangles of an image

  static constexpr Bands of(int64_t images, int64_t rows, int64_t columns, int64_t pixels) {
    const int64_t across = ceil_quotient(columns, pixels);
    const int64_t high = max_of(1, pixels / ceil_quotient(columns, across));
    return {images, rows, columns, ceil_quotient(rows, high), across};
  }
  constexpr int64_t count() const { return images * down * across; }
};

struct Band {
  int64_t image, top, bottom, left, right;

  static constexpr Band of(const Bands& bands, int64_t index) {
    const int64_t i = index / bands.across % bands.down, j = index % bands.across;
    return {index / bands.across / bands.down, i * bands.rows / bands.down, (i + 1) * bands.rows / bands.down,
            j * bands.columns / bands.across, (j + 1) * bands.columns / bands.across};
  }
  constexpr int64_t pixels() const { return (bottom - top) * (right - left); }
};

}  // namespace detail
}  // namespace ortisan
