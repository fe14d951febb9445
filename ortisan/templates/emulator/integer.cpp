// Integer arithmetic, logic, shifts and moves.
#include <limits>
#include <type_traits>

#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <class T>
using Unsigned = std::make_unsigned_t<T>;

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
template <class T>
T shl_of(T a, uint32_t n) {
  return n < 8 * sizeof(T) ? static_cast<T>(a << n) : T(0);
}
template <class T>
T shr_of(T a, uint32_t n) {
  constexpr uint32_t bits = 8 * sizeof(T);
  if (std::is_signed_v<T>) return static_cast<T>(a >> (n < bits ? n : bits - 1));
  return n < bits ? static_cast<T>(a >> n) : T(0);
}
template <class T>
T reverse_of(T a) {
  T to = 0;
  for (unsigned k = 0; k < 8 * sizeof(T); ++k) to = static_cast<T>(to << 1 | (a >> k & 1));
  return to;
}
template <class T>
uint32_t find_of(T a, bool shift) {
  constexpr uint32_t bits = 8 * sizeof(T);
  const Unsigned<T> x = static_cast<Unsigned<T>>(a < 0 ? ~a : a);
  if (x == 0) return kNone;
  const uint32_t at = 63 - static_cast<uint32_t>(__builtin_clzll(x));
  return shift ? bits - 1 - at : at;
}
template <class T>
T extract_of(T a, uint32_t from, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(T);
  const uint32_t begin = from & 0xff, count = length & 0xff;
  if (count == 0) return 0;
  const uint32_t last = begin + count - 1 < bits ? begin + count - 1 : bits - 1;
  const bool sign = std::is_signed_v<T> && (static_cast<Unsigned<T>>(a) >> last & 1) != 0;
  Unsigned<T> to = sign ? static_cast<Unsigned<T>>(-1) : 0;
  for (uint32_t k = 0; k < count && k < bits; ++k) {
    const Unsigned<T> bit = begin + k < bits ? static_cast<Unsigned<T>>(a) >> (begin + k) & 1 : (sign ? 1 : 0);
    to = (to & ~(Unsigned<T>(1) << k)) | bit << k;
  }
  return static_cast<T>(to);
}
template <class T>
T insert_of(T a, T b, uint32_t from, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(T);
  const uint32_t begin = from & 0xff, count = length & 0xff;
  if (count == 0 || begin >= bits) return b;
  const T ones = count >= bits ? static_cast<T>(-1) : static_cast<T>((T(1) << count) - 1);
  const T mask = static_cast<T>(ones << begin);
  return static_cast<T>((b & ~mask) | (static_cast<T>(a << begin) & mask));
}
uint32_t permute_of(uint32_t a, uint32_t b, uint32_t control) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t to = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t pick = control >> (4 * k) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (pick & 7))) & 0xff;
    if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    to |= byte << (8 * k);
  }
  return to;
}
// The selections of prmt's modes .f4e .b4e .rc8 .ecl .ecr .rc16.
uint32_t control_of(int64_t mode, uint32_t c) {
  static constexpr uint32_t tables[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                                            {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
                                            {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
  return tables[mode - 1][c & 3];
}

#define UNARY(NAME, D, A, EXPRESSION)                                      \
  void NAME(Warp& w, const Instr& i) {                                     \
    map<D, A>(w, i, [&](A a) -> D { return static_cast<D>(EXPRESSION); }); \
  }
#define BINARY(NAME, D, A, B, EXPRESSION)                                          \
  void NAME(Warp& w, const Instr& i) {                                             \
    map<D, A, B>(w, i, [&](A a, B b) -> D { return static_cast<D>(EXPRESSION); }); \
  }
#define TERNARY(NAME, D, A, B, C, EXPRESSION)                                              \
  void NAME(Warp& w, const Instr& i) {                                                     \
    map<D, A, B, C>(w, i, [&](A a, B b, C c) -> D { return static_cast<D>(EXPRESSION); }); \
  }

template <class T>
BINARY(add, T, T, T, add_of<T>(a, b))
template <class T>
BINARY(sub, T, T, T, a - b)
template <class T>
BINARY(mul, T, T, T, Unsigned<T>(a) * uint64_t{Unsigned<T>(b)})
template <class T>
BINARY(mul_high, T, T, T, high_of<T>(a, b))
template <class T>
BINARY(mul_wide, Wide<T>, T, T, Wide<T>(a) * Wide<T>(b))
template <class T>
TERNARY(mad, T, T, T, T, Unsigned<T>(a) * uint64_t{Unsigned<T>(b)} + uint64_t{Unsigned<T>(c)})
template <class T>
TERNARY(mad_high, T, T, T, T, high_of<T>(a, b) + c)
template <class T>
TERNARY(mad_wide, Wide<T>, T, T, Wide<T>, Unsigned<Wide<T>>(Wide<T>(a) * Wide<T>(b)) + Unsigned<Wide<T>>(c))
template <class T>
BINARY(divide, T, T, T, div_of<T>(a, b))
template <class T>
BINARY(remainder, T, T, T, rem_of<T>(a, b))
template <class T>
BINARY(minimum, T, T, T, a < b ? a : b)
template <class T>
BINARY(maximum, T, T, T, a > b ? a : b)
template <class T>
UNARY(absolute, T, T, a < 0 ? Unsigned<T>(0) - Unsigned<T>(a) : Unsigned<T>(a))
template <class T>
UNARY(negate, T, T, Unsigned<T>(0) - Unsigned<T>(a))
template <class T>
TERNARY(sad, T, T, T, T, Unsigned<T>(c) + (a < b ? Unsigned<T>(b) - Unsigned<T>(a) : Unsigned<T>(a) - Unsigned<T>(b)))
template <class T>
BINARY(and_, T, T, T, a& b)
template <class T>
BINARY(or_, T, T, T, a | b)
template <class T>
BINARY(xor_, T, T, T, a ^ b)
template <class T>
UNARY(not_, T, T, ~a)
template <class T>
UNARY(cnot, T, T, a == 0 ? 1 : 0)
template <class T>
UNARY(move, T, T, a)
template <class T>
BINARY(shl, T, T, uint32_t, shl_of<T>(a, b))
template <class T>
BINARY(shr, T, T, uint32_t, shr_of<T>(a, b))
template <class T>
UNARY(popc, uint32_t, T, __builtin_popcountll(a))
template <class T>
UNARY(clz, uint32_t, T, a == 0 ? 8 * sizeof(T) : __builtin_clzll(a) - (64 - 8 * sizeof(T)))
template <class T>
UNARY(reverse, T, T, reverse_of<T>(a))
template <class T>
UNARY(find, uint32_t, T, find_of<T>(a, i.immediate != 0))
template <class T>
TERNARY(extract, T, T, uint32_t, uint32_t, extract_of<T>(a, b, c))
TERNARY(permute, uint32_t, uint32_t, uint32_t, uint32_t,
        permute_of(a, b, i.immediate == 0 ? c : control_of(i.immediate, c)))
    TERNARY(funnel_left, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t{b} << 32 | a) << (c & 31) >> 32)
        TERNARY(funnel_right, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t{b} << 32 | a) >> (c & 31))
            TERNARY(funnel_left_clamp, uint32_t, uint32_t, uint32_t, uint32_t,
                    c < 32 ? (uint64_t{b} << 32 | a) << c >> 32 : a)
                TERNARY(funnel_right_clamp, uint32_t, uint32_t, uint32_t, uint32_t,
                        c < 32 ? (uint64_t{b} << 32 | a) >> c : b)

                    int32_t clamped(int64_t x) {
  return static_cast<int32_t>(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}
BINARY(add_saturate, int32_t, int32_t, int32_t, clamped(int64_t{a} + b))
BINARY(sub_saturate, int32_t, int32_t, int32_t, clamped(int64_t{a} - b))
template <class T>
BINARY(mul24, T, T, T, (int64_t{T(Unsigned<T>(a) << 8) >> 8} * int64_t{T(Unsigned<T>(b) << 8) >> 8}) >> i.immediate)
template <class T>
TERNARY(mad24, T, T, T, T,
        ((int64_t{T(Unsigned<T>(a) << 8) >> 8} * int64_t{T(Unsigned<T>(b) << 8) >> 8}) >> i.immediate) + c)

template <class T>
void insert(Warp& w, const Instr& i) {
  const uint32_t* length = w.at<uint32_t>(i.op[4]);
  Result<T> d(w, i.op[0]);
  const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
  const uint32_t* from = w.at<uint32_t>(i.op[3]);
  for (int l = 0; l < kLanes; ++l) d.to[l] = insert_of<T>(a[l], b[l], from[l], length[l]);
  d.finish(w);
}

void logic3(Warp& w, const Instr& i) {
  const auto table = static_cast<uint32_t>(i.immediate);
  uint32_t all[8];
  for (int k = 0; k < 8; ++k) all[k] = (table >> k & 1) != 0 ? kAll : 0;
  map<uint32_t, uint32_t, uint32_t, uint32_t>(w, i, [&](uint32_t a, uint32_t b, uint32_t c) {
    return (~a & ~b & ~c & all[0]) | (~a & ~b & c & all[1]) | (~a & b & ~c & all[2]) | (~a & b & c & all[3]) |
           (a & ~b & ~c & all[4]) | (a & ~b & c & all[5]) | (a & b & ~c & all[6]) | (a & b & c & all[7]);
  });
}

template <class T>
void select(Warp& w, const Instr& i) {
  const uint32_t bits = get_bits(w, i.op[3]) ^ (i.immediate != 0 ? kAll : 0);
  Result<T> d(w, i.op[0]);
  const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
#pragma GCC ivdep
  for (int l = 0; l < kLanes; ++l) d.to[l] = bits >> l & 1 ? a[l] : b[l];
  d.finish(w);
}

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

// mov between a register and the parts that it is made of, lowest first.
template <class Whole, class Part>
void pack(Warp& w, const Instr& i) {
  Result<Whole> d(w, i.op[0]);
  constexpr int count = sizeof(Whole) / sizeof(Part);
  const Part* parts[count];
  for (int k = 0; k < count; ++k) parts[k] = w.at<Part>(i.op[1 + k]);
  for (int l = 0; l < kLanes; ++l) {
    uint64_t whole = 0;
    for (int k = 0; k < count; ++k) whole |= uint64_t{parts[k][l]} << (8 * sizeof(Part) * k);
    reinterpret_cast<Whole*>(w.scratch[7])[l] = static_cast<Whole>(whole);
  }
  blend(d.real, reinterpret_cast<const Whole*>(w.scratch[7]), w.active);
}

template <class Whole, class Part>
void unpack(Warp& w, const Instr& i) {
  constexpr int count = sizeof(Whole) / sizeof(Part);
  std::memcpy(w.scratch[7], w.at<Whole>(i.op[count]), sizeof(Whole) * kLanes);
  const Whole* whole = reinterpret_cast<const Whole*>(w.scratch[7]);
  for (int k = 0; k < count; ++k) {
    if (i.op[k] == kNone) continue;
    Result<Part> d(w, i.op[k]);
    for (int l = 0; l < kLanes; ++l) d.to[l] = static_cast<Part>(whole[l] >> (8 * sizeof(Part) * k));
    d.finish(w);
  }
}

void move_predicate(Warp& w, const Instr& i) { set_bits(w, i.op[0], get_bits(w, i.op[1])); }
void and_predicate(Warp& w, const Instr& i) { set_bits(w, i.op[0], get_bits(w, i.op[1]) & get_bits(w, i.op[2])); }
void or_predicate(Warp& w, const Instr& i) { set_bits(w, i.op[0], get_bits(w, i.op[1]) | get_bits(w, i.op[2])); }
void xor_predicate(Warp& w, const Instr& i) { set_bits(w, i.op[0], get_bits(w, i.op[1]) ^ get_bits(w, i.op[2])); }
void not_predicate(Warp& w, const Instr& i) { set_bits(w, i.op[0], ~get_bits(w, i.op[1])); }

// Addresses of a window of this thread or block, as generic ones, and back.
void to_generic(Warp& w, const Instr& i) {
  const uint64_t window = static_cast<uint64_t>(i.immediate);
  map<uint64_t, uint64_t>(w, i, [=](uint64_t a) { return a | window; });
}
void from_generic(Warp& w, const Instr& i) {
  map<uint64_t, uint64_t>(w, i, [](uint64_t a) { return a & ~kWindowMask; });
}
void is_space(Warp& w, const Instr& i) {
  const uint64_t* a = w.at<uint64_t>(i.op[1]);
  uint32_t bits = 0;
  for (int l = 0; l < kLanes; ++l) bits |= uint32_t{(a[l] & kWindowMask) == static_cast<uint64_t>(i.immediate)} << l;
  set_bits(w, i.op[0], bits);
}

#define BITS(NAME, F) \
  {NAME ".b16", F<uint16_t>}, {NAME ".b32", F<uint32_t>}, { NAME ".b64", F<uint64_t> }
#define SIGNED(NAME, F) \
  {NAME ".s16", F<int16_t>}, {NAME ".s32", F<int32_t>}, { NAME ".s64", F<int64_t> }
#define INTEGERS(NAME, F) \
  SIGNED(NAME, F), {NAME ".u16", F<uint16_t>}, {NAME ".u32", F<uint32_t>}, { NAME ".u64", F<uint64_t> }
#define SHORT(NAME, F) \
  {NAME ".s16", F<int16_t>}, {NAME ".s32", F<int32_t>}, {NAME ".u16", F<uint16_t>}, { NAME ".u32", F<uint32_t> }
#define LONG(NAME, F) \
  {NAME ".s32", F<int32_t>}, {NAME ".s64", F<int64_t>}, {NAME ".u32", F<uint32_t>}, { NAME ".u64", F<uint64_t> }
#define MIXED(NAME, F)                                                                                                \
  {NAME ".s32.s32", F<int8_t, int8_t>}, {NAME ".s32.u32", F<int8_t, uint8_t>}, {NAME ".u32.s32", F<uint8_t, int8_t>}, \
  {                                                                                                                   \
    NAME ".u32.u32", F<uint8_t, uint8_t>                                                                              \
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
    BITS("and", and_),
    BITS("or", or_),
    BITS("xor", xor_),
    BITS("not", not_),
    BITS("cnot", cnot),
    BITS("mov", move),
    BITS("shl", shl),
    INTEGERS("shr", shr),
    BITS("selp", select),
    {"add.sat.s32", add_saturate},
    {"sub.sat.s32", sub_saturate},
    {"mul24.s32", mul24<int32_t>},
    {"mul24.u32", mul24<uint32_t>},
    {"mad24.s32", mad24<int32_t>},
    {"mad24.u32", mad24<uint32_t>},
    {"popc.b32", popc<uint32_t>},
    {"popc.b64", popc<uint64_t>},
    {"clz.b32", clz<uint32_t>},
    {"clz.b64", clz<uint64_t>},
    {"brev.b32", reverse<uint32_t>},
    {"brev.b64", reverse<uint64_t>},
    LONG("bfind", find),
    LONG("bfe", extract),
    {"bfi.b32", insert<uint32_t>},
    {"bfi.b64", insert<uint64_t>},
    {"prmt.b32", permute},
    {"lop3.b32", logic3},
    {"shf.l.wrap.b32", funnel_left},
    {"shf.r.wrap.b32", funnel_right},
    {"shf.l.clamp.b32", funnel_left_clamp},
    {"shf.r.clamp.b32", funnel_right_clamp},
    MIXED("dp4a", dot4),
    MIXED("dp2a", dot2),
    {"carry.b32", carried<uint32_t>},
    {"carry.b64", carried<uint64_t>},
    {"pack.b32.b16", pack<uint32_t, uint16_t>},
    {"pack.b64.b32", pack<uint64_t, uint32_t>},
    {"pack.b64.b16", pack<uint64_t, uint16_t>},
    {"unpack.b32.b16", unpack<uint32_t, uint16_t>},
    {"unpack.b64.b32", unpack<uint64_t, uint32_t>},
    {"unpack.b64.b16", unpack<uint64_t, uint16_t>},
    {"mov.pred", move_predicate},
    {"and.pred", and_predicate},
    {"or.pred", or_predicate},
    {"xor.pred", xor_predicate},
    {"not.pred", not_predicate},
    {"cvta", to_generic},
    {"cvta.to", from_generic},
    {"isspacep", is_space},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator
