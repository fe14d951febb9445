// What becomes of the sums of a convolution, behind two functions: convolutions are compiled once, not for each epilogue.
#pragma once

#include <cstdint>

#include "blocking.h"
#include "clamp.h"
#include "conv_shape.h"

namespace ortisan {

// The epilogue and the prefetch of a product whose rows are the pixels of the output and whose columns are the filters; see
// gemm.h. `usual` is the number of columns that most tiles have.
template <class T>
struct ConvOutput {
  const void* self;
  void (*finish)(const void* self, int64_t row, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n);
  void (*fetch)(const void* self, int64_t row, int64_t col);
  Clamp<T> clamp;
  T* out;  // where the results go that are clamped sums

  void epilogue(int64_t row, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n) const {
    finish(self, row, rows, col, sums, width, n);
  }
  void prefetch(int64_t row, int64_t col) const { fetch(self, row, col); }
  T* at(int64_t element) const { return out == nullptr ? nullptr : out + element; }
};

template <class T>
struct ConvCall {
  ConvShape shape;
  const T* x;
  const T* w;
  Blocking blocking;
  ConvOutput<T> output;
};

namespace detail {

template <class Epilogue, class Prefetch>
struct ConvLambdas {
  const Epilogue& epilogue;
  const Prefetch& prefetch;
};

}  // namespace detail

// A call with these two lambdas, which must outlive it. With a clamp, they write what the clamp says to `out`.
template <class T, int64_t usual, class Lambdas>
ConvOutput<T> conv_output(const Lambdas& lambdas, const Clamp<T>& clamp = {}, T* out = nullptr) {
  return {&lambdas,
          [](const void* self, int64_t row, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n) {
            const Lambdas& own = *static_cast<const Lambdas*>(self);
            if (n == usual && width == usual)
              own.epilogue(row, rows, col, sums, usual, usual);
            else
              own.epilogue(row, rows, col, sums, width, n);
          },
          [](const void* self, int64_t row, int64_t col) { static_cast<const Lambdas*>(self)->prefetch(row, col); },
          clamp, out};
}

}  // namespace ortisan
