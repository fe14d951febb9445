// Copies that go around the caches.
#pragma once

#include <cstdint>

#include "pieces.h"
#include "vectors.h"

namespace ortisan {

// Below this a copy is soon read again, or costs nothing.
constexpr int64_t stream_bytes = 256 << 10;

namespace detail {

typedef int64_t stream_t __attribute__((vector_size(vector_bytes), may_alias));

// A line that is written whole needs not be read first, when it does not go through the cache. `to` is aligned.
inline void stream_store(stream_t* to, stream_t value) {
#if defined(__AVX__)
  asm volatile("vmovntdq %1, %0" : "=m"(*to) : "v"(value));
#elif defined(__SSE2__)
  asm volatile("movntdq %1, %0" : "=m"(*to) : "x"(value));
#else
  *to = value;
#endif
}

// Such stores come in any order; what follows this comes after them.
inline void end_stream() {
#if defined(__SSE2__)
  asm volatile("sfence" ::: "memory");
#endif
}

inline void stream_copy(void* to, const void* from, int64_t bytes) {
  constexpr int64_t line = 64, vectors = line / vector_bytes;
  char* dst = static_cast<char*>(to);
  const char* src = static_cast<const char*>(from);
  const int64_t before = min_of(bytes, -reinterpret_cast<intptr_t>(dst) & (line - 1));
  __builtin_memcpy(dst, src, static_cast<uint64_t>(before));
  int64_t done = before;
  for (; done + line <= bytes; done += line) {
    stream_t value[vectors];
    __builtin_memcpy(value, src + done, line);
    for (int64_t i = 0; i < vectors; ++i) stream_store(reinterpret_cast<stream_t*>(dst + done) + i, value[i]);
  }
  end_stream();
  __builtin_memcpy(dst + done, src + done, static_cast<uint64_t>(bytes - done));
}

}  // namespace detail

}  // namespace ortisan
