// The vectors of the instruction set that kernels are built for.
#pragma once

#include <cstdint>

#include "macros.h"

namespace ortisan {

// plain_tile_rows: the rows of a register tile that fill the registers where the compiler chooses them.
#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
constexpr int64_t plain_tile_rows = 8;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
constexpr int64_t plain_tile_rows = 6;
#elif defined(__aarch64__)
constexpr int vector_bytes = 16;
constexpr int64_t plain_tile_rows = 4;
#else
constexpr int vector_bytes = 16;
constexpr int64_t plain_tile_rows = 2;
#endif

namespace detail {

// Keeps a vector in a register: GCC would read it from memory again at each of its uses.
template <class V>
ORTISAN_INLINE inline void keep_in_register([[maybe_unused]] V& v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

// The same for an address: GCC would keep many of them, in more registers than there are.
template <class T>
ORTISAN_INLINE inline void keep_in_register(const T*& address) {
  asm("" : "+r"(address));
}

}  // namespace detail
}  // namespace ortisan
