// What kernels tell the compiler that C++ has no words for. These macros last to the end of a file, which includes end_macros.h.
#pragma once

// For functions that nvcc compiles for GPUs too: they call nothing but functions like them. ORTISAN_HIDDEN is for numbers that
// compilers for CPUs are not to know; nvcc may.
#if defined(__CUDACC__)
#define ORTISAN_BOTH __host__ __device__
#define ORTISAN_HIDDEN constexpr
#else
#define ORTISAN_BOTH
#define ORTISAN_HIDDEN inline
#endif

// For functions that are called once for every few elements: [=](int64_t i) ORTISAN_INLINE { ... }
#define ORTISAN_INLINE __attribute__((always_inline))

// ORTISAN_UNROLL(4) unrolls the next loop; ORTISAN_INDEPENDENT says that its iterations don't touch each other's memory.
#define ORTISAN_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ORTISAN_UNROLL(count) ORTISAN_PRAGMA(clang loop unroll_count(count))
#define ORTISAN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ORTISAN_UNROLL(count) ORTISAN_PRAGMA(GCC unroll count)
#define ORTISAN_INDEPENDENT _Pragma("GCC ivdep")
#endif
