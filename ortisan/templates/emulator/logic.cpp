// Logic, shifts, counts and fields of bits.
#include "elements.h"

namespace ortisan::emulator {

namespace {

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

// clang-format off
template <class T> BINARY(and_, T, T, T, a& b)
template <class T> BINARY(or_, T, T, T, a | b)
template <class T> BINARY(xor_, T, T, T, a ^ b)
template <class T> UNARY(not_, T, T, ~a)
template <class T> UNARY(cnot, T, T, a == 0 ? 1 : 0)
template <class T> BINARY(shl, T, T, uint32_t, shl_of<T>(a, b))
template <class T> BINARY(shr, T, T, uint32_t, shr_of<T>(a, b))
template <class T> UNARY(popc, uint32_t, T, __builtin_popcountll(a))
template <class T> UNARY(clz, uint32_t, T, a == 0 ? 8 * sizeof(T) : __builtin_clzll(a) - (64 - 8 * sizeof(T)))
template <class T> UNARY(reverse, T, T, reverse_of<T>(a))
template <class T> UNARY(find, uint32_t, T, find_of<T>(a, i.immediate != 0))
template <class T> TERNARY(extract, T, T, uint32_t, uint32_t, extract_of<T>(a, b, c))
TERNARY(permute, uint32_t, uint32_t, uint32_t, uint32_t, permute_of(a, b, i.immediate == 0 ? c : control_of(i.immediate, c)))
TERNARY(funnel_left, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t{b} << 32 | a) << (c & 31) >> 32)
TERNARY(funnel_right, uint32_t, uint32_t, uint32_t, uint32_t, (uint64_t{b} << 32 | a) >> (c & 31))
TERNARY(funnel_left_clamp, uint32_t, uint32_t, uint32_t, uint32_t, c < 32 ? (uint64_t{b} << 32 | a) << c >> 32 : a)
TERNARY(funnel_right_clamp, uint32_t, uint32_t, uint32_t, uint32_t, c < 32 ? (uint64_t{b} << 32 | a) >> c : b)
    // clang-format on

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

}  // namespace

const Entry kLogic[] = {
    BITS("and", and_),
    BITS("or", or_),
    BITS("xor", xor_),
    BITS("not", not_),
    BITS("cnot", cnot),
    BITS("shl", shl),
    INTEGERS("shr", shr),
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
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#include "end_elements.h"
