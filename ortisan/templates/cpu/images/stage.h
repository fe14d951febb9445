// The epilogue of sums whose results stay in the cache, behind a function: see conv_output.h.
#pragma once

#include <cstdint>

#include "conv_output.h"

namespace ortisan {

// Results go to `to`, rows `ld` apart.
template <class T>
struct Stage {
  const void* self;
  void (*call)(const void* self, T* to, int64_t ld, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n);
  Clamp<T> clamp;

  void finish(T* to, int64_t ld, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n) const {
    call(self, to, ld, rows, col, sums, width, n);
  }
};

// A stage with this lambda, which must outlive it; `usual` is the number of columns that most tiles have.
template <class T, int64_t usual, class Lambda>
Stage<T> stage_of(const Lambda& lambda, const Clamp<T>& clamp = {}) {
  return {&lambda,
          [](const void* self, T* to, int64_t ld, int64_t rows, int64_t col, const T* sums, int64_t width, int64_t n) {
            const Lambda& own = *static_cast<const Lambda*>(self);
            if (n == usual && width == usual)
              own(to, ld, rows, col, sums, usual, usual);
            else
              own(to, ld, rows, col, sums, width, n);
          },
          clamp};
}

}  // namespace ortisan
