// setp and set: comparisons, joined with a predicate.
#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

enum : uint32_t { kAnd = kFirstFlag, kOr = kFirstFlag << 1, kXor = kFirstFlag << 2, kNotC = kFirstFlag << 3 };

enum Compare { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNanTest };

template <int kCompare, class T>
inline bool compare(T a, T b) {
  switch (kCompare) {
    case kEq: return a == b;
    case kNe: return (a < b) | (a > b);
    case kLt: return a < b;
    case kLe: return a <= b;
    case kGt: return a > b;
    case kGe: return a >= b;
    case kEqu: return !((a < b) | (a > b));
    case kNeu: return !(a == b);
    case kLtu: return !(a >= b);
    case kLeu: return !(a > b);
    case kGtu: return !(a <= b);
    case kGeu: return !(a < b);
    case kNum: return (a == a) & (b == b);
    default: return (a != a) | (b != b);
  }
}

// One bit per lane, out of one byte per lane.
inline uint32_t collect(const uint8_t* lanes) {
  uint32_t bits = 0;
  for (int k = 0; k < 4; ++k) {
    uint64_t eight;
    std::memcpy(&eight, lanes + 8 * k, 8);
    bits |= static_cast<uint32_t>(eight * 0x0102040810204080u >> 56) << (8 * k);
  }
  return bits;
}

template <class T>
struct Same {
  using Stored = T;
  static T read(T x, uint32_t) { return x; }
};
template <>
float Same<float>::read(float x, uint32_t flags) {
  return (flags & kFlush) != 0 ? flush(x) : x;
}
struct Half {
  using Stored = uint16_t;
  static float read(uint16_t x, uint32_t) { return from_half(x); }
};
struct Bfloat {
  using Stored = uint16_t;
  static float read(uint16_t x, uint32_t) { return from_bfloat(x); }
};

template <class R, int kCompare>
uint32_t bits_of(const typename R::Stored* a, const typename R::Stored* b, uint32_t flags) {
  alignas(32) uint8_t lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = compare<kCompare>(R::read(a[l], flags), R::read(b[l], flags));
  return collect(lanes);
}

// Result, second result or none, a, b, predicate or none.
template <class R, int kCompare>
void set_predicate(Warp& w, const Instr& i) {
  using S = typename R::Stored;
  const uint32_t bits = bits_of<R, kCompare>(w.at<S>(i.op[2]), w.at<S>(i.op[3]), i.flags);
  uint32_t with = kAll;
  if (i.op[4] != kNone) with = get_bits(w, i.op[4]) ^ ((i.flags & kNotC) != 0 ? kAll : 0);
  const auto join = [&](uint32_t x) {
    return (i.flags & kOr) != 0 ? x | with : (i.flags & kXor) != 0 ? x ^ with : x & with;
  };
  if (i.op[0] != kNone) set_bits(w, i.op[0], join(bits));
  if (i.op[1] != kNone) set_bits(w, i.op[1], join(~bits));
}

template <class D, class R, int kCompare>
void set_to(Warp& w, const Instr& i) {
  using S = typename R::Stored;
  uint32_t bits = bits_of<R, kCompare>(w.at<S>(i.op[2]), w.at<S>(i.op[3]), i.flags);
  if (i.op[4] != kNone) {
    const uint32_t with = get_bits(w, i.op[4]) ^ ((i.flags & kNotC) != 0 ? kAll : 0);
    bits = (i.flags & kOr) != 0 ? bits | with : (i.flags & kXor) != 0 ? bits ^ with : bits & with;
  }
  const D yes = static_cast<D>(i.immediate);
  Result<D> d(w, i.op[0]);
  for (int l = 0; l < kLanes; ++l) d.to[l] = bits >> l & 1 ? yes : 0;
  d.finish(w);
}

template <class R, int kCompare>
void set_number(Warp& w, const Instr& i) {
  set_to<uint32_t, R, kCompare>(w, i);
}
template <class R, int kCompare>
void set_half(Warp& w, const Instr& i) {
  set_to<uint16_t, R, kCompare>(w, i);
}

// slct: a where c >= 0, else b.
template <class T, class C>
void select_by_sign(Warp& w, const Instr& i) {
  const bool flushed = (i.flags & kFlush) != 0;
  map<T, T, T, C>(w, i, [=](T a, T b, C c) { return (flushed ? Same<C>::read(c, kFlush) : c) >= 0 ? a : b; });
}

#define INTEGER(KIND, NAME, T, F)                                                                                \
  {KIND ".eq." NAME, F<Same<T>, kEq>}, {KIND ".ne." NAME, F<Same<T>, kNe>}, {KIND ".lt." NAME, F<Same<T>, kLt>}, \
      {KIND ".le." NAME, F<Same<T>, kLe>}, {KIND ".gt." NAME, F<Same<T>, kGt>}, {                                \
    KIND ".ge." NAME, F<Same<T>, kGe>                                                                            \
  }
#define INTEGERS(KIND, F)                                                                               \
  INTEGER(KIND, "s16", int16_t, F), INTEGER(KIND, "s32", int32_t, F), INTEGER(KIND, "s64", int64_t, F), \
      INTEGER(KIND, "u16", uint16_t, F), INTEGER(KIND, "u32", uint32_t, F), INTEGER(KIND, "u64", uint64_t, F)
#define FLOATING(KIND, NAME, R, F)                                                                       \
  {KIND ".eq." NAME, F<R, kEq>}, {KIND ".ne." NAME, F<R, kNe>}, {KIND ".lt." NAME, F<R, kLt>},           \
      {KIND ".le." NAME, F<R, kLe>}, {KIND ".gt." NAME, F<R, kGt>}, {KIND ".ge." NAME, F<R, kGe>},       \
      {KIND ".equ." NAME, F<R, kEqu>}, {KIND ".neu." NAME, F<R, kNeu>}, {KIND ".ltu." NAME, F<R, kLtu>}, \
      {KIND ".leu." NAME, F<R, kLeu>}, {KIND ".gtu." NAME, F<R, kGtu>}, {KIND ".geu." NAME, F<R, kGeu>}, \
      {KIND ".num." NAME, F<R, kNum>}, {                                                                 \
    KIND ".nan." NAME, F<R, kNanTest>                                                                    \
  }
#define ALL(KIND, F)                                                                                \
  INTEGERS(KIND, F), FLOATING(KIND, "f32", Same<float>, F), FLOATING(KIND, "f64", Same<double>, F), \
      FLOATING(KIND, "f16", Half, F), FLOATING(KIND, "bf16", Bfloat, F)

}  // namespace

const Entry kCompare[] = {
    ALL("setp", set_predicate),
    ALL("set", set_number),
    FLOATING("set16", "f16", Half, set_half),
    FLOATING("set16", "bf16", Bfloat, set_half),
    {"slct.b32.s32", select_by_sign<uint32_t, int32_t>},
    {"slct.b32.f32", select_by_sign<uint32_t, float>},
    {"slct.b64.s32", select_by_sign<uint64_t, int32_t>},
    {"slct.b64.f32", select_by_sign<uint64_t, float>},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#undef INTEGER
#undef INTEGERS
#undef FLOATING
#undef ALL
