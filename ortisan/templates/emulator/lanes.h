// Handlers out of functions of one lane: loops over 32 lanes that compilers make vectors of.
//
// All lanes compute. When some are inactive, the results go to a scratch register first, and only those of active lanes on.
#pragma once

#include "bits.h"
#include "machine.h"

namespace ortisan::emulator {

template <class T>
inline void blend(T* to, const T* from, uint32_t lanes) {
  for (int l = 0; l < kLanes; ++l) to[l] = lanes >> l & 1 ? from[l] : to[l];
}

// Where a handler writes its result number k, and `finish` after it.
template <class T>
struct Result {
  T* real;
  T* to;

  Result(Warp& w, uint32_t place, int k = 0)
      : real(w.at<T>(place)), to(w.active == kAll ? real : reinterpret_cast<T*>(w.scratch[k])) {}
  void finish(const Warp& w) {
    if (to != real) blend(real, to, w.active);
  }
};

template <class D, class A, class F>
inline void map(Warp& w, const Instr& i, F f) {
  Result<D> d(w, i.op[0]);
  const A* a = w.at<A>(i.op[1]);
  D* to = d.to;
#pragma GCC ivdep
  for (int l = 0; l < kLanes; ++l) to[l] = f(a[l]);
  d.finish(w);
}

template <class D, class A, class B, class F>
inline void map(Warp& w, const Instr& i, F f) {
  Result<D> d(w, i.op[0]);
  const A* a = w.at<A>(i.op[1]);
  const B* b = w.at<B>(i.op[2]);
  D* to = d.to;
#pragma GCC ivdep
  for (int l = 0; l < kLanes; ++l) to[l] = f(a[l], b[l]);
  d.finish(w);
}

template <class D, class A, class B, class C, class F>
inline void map(Warp& w, const Instr& i, F f) {
  Result<D> d(w, i.op[0]);
  const A* a = w.at<A>(i.op[1]);
  const B* b = w.at<B>(i.op[2]);
  const C* c = w.at<C>(i.op[3]);
  D* to = d.to;
#pragma GCC ivdep
  for (int l = 0; l < kLanes; ++l) to[l] = f(a[l], b[l], c[l]);
  d.finish(w);
}

// A predicate is one word, a bit per lane.
inline void set_bits(Warp& w, uint32_t place, uint32_t bits) {
  uint32_t* to = w.at<uint32_t>(place);
  *to = (*to & ~w.active) | (bits & w.active);
}

inline uint32_t get_bits(Warp& w, uint32_t place) { return *w.at<uint32_t>(place); }

template <class F>
inline void for_each(uint32_t lanes, F f) {
  for (; lanes != 0; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

}  // namespace ortisan::emulator
