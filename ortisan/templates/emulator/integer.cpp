// Integer arithmetic.
#include "elements.h"

namespace ortisan::emulator {

namespace {

template <class T>
T add_of(T a, T b) {
  return static_cast<T>(a + b);
}
template <class T>
T high_of(T a, T b) {
  return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
}
template <class T>
T div_of(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a));
  return static_cast<T>(a / b);
}
template <class T>
T rem_of(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

// clang-format off
template <class T> BINARY(add, T, T, T, add_of<T>(a, b))
template <class T> BINARY(sub, T, T, T, a - b)
template <class T> BINARY(mul, T, T, T, Unsigned<T>(a) * uint64_t{Unsigned<T>(b)})
template <class T> BINARY(mul_high, T, T, T, high_of<T>(a, b))
template <class T> BINARY(mul_wide, Wide<T>, T, T, Wide<T>(a) * Wide<T>(b))
template <class T> TERNARY(mad, T, T, T, T, Unsigned<T>(a) * uint64_t{Unsigned<T>(b)} + uint64_t{Unsigned<T>(c)})
template <class T> TERNARY(mad_high, T, T, T, T, high_of<T>(a, b) + c)
template <class T> TERNARY(mad_wide, Wide<T>, T, T, Wide<T>, Unsigned<Wide<T>>(Wide<T>(a) * Wide<T>(b)) + Unsigned<Wide<T>>(c))
template <class T> BINARY(divide, T, T, T, div_of<T>(a, b))
template <class T> BINARY(remainder, T, T, T, rem_of<T>(a, b))
template <class T> BINARY(minimum, T, T, T, a < b ? a : b)
template <class T> BINARY(maximum, T, T, T, a > b ? a : b)
template <class T> UNARY(absolute, T, T, a < 0 ? Unsigned<T>(0) - Unsigned<T>(a) : Unsigned<T>(a))
template <class T> UNARY(negate, T, T, Unsigned<T>(0) - Unsigned<T>(a))
template <class T> TERNARY(sad, T, T, T, T, Unsigned<T>(c) + (a < b ? Unsigned<T>(b) - Unsigned<T>(a) : Unsigned<T>(a) - Unsigned<T>(b)))
// clang-format on

int32_t clamped(int64_t x) {
  return static_cast<int32_t>(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}
// clang-format off
BINARY(add_saturate, int32_t, int32_t, int32_t, clamped(int64_t{a} + b))
BINARY(sub_saturate, int32_t, int32_t, int32_t, clamped(int64_t{a} - b))
template <class T> BINARY(mul24, T, T, T, (int64_t{T(Unsigned<T>(a) << 8) >> 8} * int64_t{T(Unsigned<T>(b) << 8) >> 8}) >> i.immediate)
template <class T> TERNARY(mad24, T, T, T, T, ((int64_t{T(Unsigned<T>(a) << 8) >> 8} * int64_t{T(Unsigned<T>(b) << 8) >> 8}) >> i.immediate) + c)
// clang-format on

// dp4a and dp2a: four bytes of a, each as a signed or unsigned number, times bytes of b or 16-bit numbers of it.
template <class A, class B>
void dot4(Warp& w, const Instr& i) {
  map<uint32_t, uint32_t, uint32_t, uint32_t>(w, i, [](uint32_t a, uint32_t b, uint32_t c) {
    for (int k = 0; k < 4; ++k) c += static_cast<uint32_t>(int32_t{A(a >> (8 * k))} * int32_t{B(b >> (8 * k))});
    return c;
  });
}
template <class A, class B>
void dot2(Warp& w, const Instr& i) {
  const int high = i.immediate != 0 ? 16 : 0;
  using Short = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
  map<uint32_t, uint32_t, uint32_t, uint32_t>(w, i, [=](uint32_t a, uint32_t b, uint32_t c) {
    for (int k = 0; k < 2; ++k) c += static_cast<uint32_t>(int64_t{Short(a >> (16 * k))} * B(b >> (8 * k + high)));
    return c;
  });
}

// add, sub and mad with carry. Flags: carry in, carry out; sums are a * b + c, or a + c with `b` left out.
enum : uint32_t {
  kCarryIn = kFirstFlag,
  kCarryOut = kFirstFlag << 1,
  kBorrow = kFirstFlag << 2,
  kHigh = kFirstFlag << 3
};

template <class T>
void carried(Warp& w, const Instr& i) {
  using W = Wide<T>;
  Result<T> d(w, i.op[0]);
  const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]), *c = i.op[3] == kNone ? nullptr : w.at<T>(i.op[3]);
  uint32_t carry = 0;
  for (int l = 0; l < kLanes; ++l) {
    const W in = (i.flags & kCarryIn) != 0 ? w.carry >> l & 1 : 0;
    W sum;
    if ((i.flags & kBorrow) != 0) {
      sum = W(a[l]) - W(b[l]) - in;
    } else if (c == nullptr) {
      sum = W(a[l]) + W(b[l]) + in;
    } else {
      const W product = W(a[l]) * W(b[l]);
      sum = W(static_cast<T>((i.flags & kHigh) != 0 ? product >> (8 * sizeof(T)) : product)) + W(c[l]) + in;
    }
    d.to[l] = static_cast<T>(sum);
    carry |= static_cast<uint32_t>(sum >> (8 * sizeof(T)) & 1) << l;
  }
  d.finish(w);
  if ((i.flags & kCarryOut) != 0) w.carry = (w.carry & ~w.active) | (carry & w.active);
}

}  // namespace

const Entry kInteger[] = {
    BITS("add", add),
    BITS("sub", sub),
    BITS("mul.lo", mul),
    BITS("mad.lo", mad),
    INTEGERS("mul.hi", mul_high),
    INTEGERS("mad.hi", mad_high),
    SHORT("mul.wide", mul_wide),
    SHORT("mad.wide", mad_wide),
    INTEGERS("div", divide),
    INTEGERS("rem", remainder),
    INTEGERS("min", minimum),
    INTEGERS("max", maximum),
    INTEGERS("sad", sad),
    SIGNED("abs", absolute),
    SIGNED("neg", negate),
    {"add.sat.s32", add_saturate},
    {"sub.sat.s32", sub_saturate},
    {"mul24.s32", mul24<int32_t>},
    {"mul24.u32", mul24<uint32_t>},
    {"mad24.s32", mad24<int32_t>},
    {"mad24.u32", mad24<uint32_t>},
    MIXED("dp4a", dot4),
    MIXED("dp2a", dot2),
    {"carry.b32", carried<uint32_t>},
    {"carry.b64", carried<uint64_t>},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#include "end_elements.h"
