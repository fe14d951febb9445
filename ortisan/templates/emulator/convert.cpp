// cvt: the frequent pairs as loops of their own, all others by way of int64 or double. Compiled with -frounding-math.
#include <cfenv>
#include <cmath>
#include <limits>

#include "lanes.h"
#include "rounding.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

enum Kind : uint8_t { kU8, kS8, kU16, kS16, kU32, kS32, kU64, kS64, kF16, kBf16, kF32, kF64 };
using Int = __int128;

// What immediate says of a conversion that has no loop of its own.
struct Form {
  Kind from, to;
  int from_bytes, to_bytes;  // of the registers
  int integral;              // 0: no; rni, rzi, rmi, rpi

  explicit Form(int64_t packed)
      : from(static_cast<Kind>(packed & 0xff)), to(static_cast<Kind>(packed >> 16 & 0xff)),
        from_bytes(packed >> 8 & 0xff), to_bytes(packed >> 24 & 0xff), integral(packed >> 32 & 0xff) {}
};

bool is_float(Kind kind) { return kind >= kF16; }
int bits_of(Kind kind) { return 8 << (kind / 2); }
bool is_signed(Kind kind) { return (kind & 1) != 0; }

uint64_t raw(Warp& w, uint32_t place, int bytes, int lane) {
  if (bytes == 2) return w.at<uint16_t>(place)[lane];
  if (bytes == 4) return w.at<uint32_t>(place)[lane];
  return w.at<uint64_t>(place)[lane];
}

void put(Warp& w, uint32_t place, int bytes, int lane, uint64_t value) {
  if (bytes == 2) w.at<uint16_t>(place)[lane] = static_cast<uint16_t>(value);
  if (bytes == 4) w.at<uint32_t>(place)[lane] = static_cast<uint32_t>(value);
  if (bytes == 8) w.at<uint64_t>(place)[lane] = value;
}

Int integer_of(uint64_t bits, Kind kind) {
  const int unused = 64 - bits_of(kind);
  if (is_signed(kind)) return static_cast<int64_t>(bits << unused) >> unused;
  return bits << unused >> unused;
}

double number_of(uint64_t bits, Kind kind, bool flushed) {
  if (kind == kF16) return from_half(static_cast<uint16_t>(bits));
  if (kind == kBf16) return from_bfloat(static_cast<uint16_t>(bits));
  if (kind == kF64) return as<double>(bits);
  const float x = as<float>(static_cast<uint32_t>(bits));
  return flushed ? flush(x) : x;
}

double integral(double x, int mode) {
  if (mode == 1) return std::nearbyint(x);
  if (mode == 2) return std::trunc(x);
  return mode == 3 ? std::floor(x) : std::ceil(x);
}

// To a float of `digits` binary digits whose smallest normal exponent is `lowest` and whose largest number is `most`.
double narrow(double x, int digits, int lowest, double most, uint32_t mode) {
  if (x != x || std::isinf(x) || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), lowest);
  const double scaled = std::ldexp(x, digits - 1 - exponent);
  const double rounded = mode == 0 ? std::nearbyint(scaled) : integral(scaled, static_cast<int>(mode) + 1);
  const double y = std::ldexp(rounded, exponent - digits + 1);
  if (std::fabs(y) <= most) return std::copysign(y, x);
  const bool infinite = mode == 0 || (mode == 2 && x < 0) || (mode == 3 && x > 0);
  return std::copysign(infinite ? HUGE_VAL : most, x);
}

uint64_t bits_from(double x, Kind kind, uint32_t flags) {
  const uint32_t mode = (flags & kRoundMask) >> kRoundShift;
  if ((flags & kSaturate) != 0) x = x > 0 ? std::fmin(x, 1.0) : 0.0;
  if ((flags & kRelu) != 0 && x < 0) x = 0;
  if (kind == kF64) return as<uint64_t>(x);
  if (kind == kF16) return to_half(static_cast<float>(narrow(x, 11, -14, 65504, mode)));
  if (kind == kBf16) return to_bfloat(static_cast<float>(narrow(x, 8, -126, 0x1.fep127, mode)));
  const float y = canonical(static_cast<float>(narrow(x, 24, -126, 0x1.fffffep127, mode)));
  return as<uint32_t>((flags & kFlush) != 0 ? flush(y) : y);
}

uint64_t clamp(Int x, Kind kind) {
  const int bits = bits_of(kind);
  const Int low = is_signed(kind) ? -(Int{1} << (bits - 1)) : 0;
  const Int high = is_signed(kind) ? (Int{1} << (bits - 1)) - 1 : (Int{1} << bits) - 1;
  return static_cast<uint64_t>(x < low ? low : x > high ? high : x);
}

uint64_t to_integer(double x, const Form& form) {
  const int bits = bits_of(form.to);
  if (x != x) return form.from == kF64 || bits == 64 ? uint64_t{1} << (bits - 1) : 0;
  x = std::fmin(std::fmax(integral(x, form.integral == 0 ? 2 : form.integral), -0x1p100), 0x1p100);
  return clamp(static_cast<Int>(x), form.to);
}

// An integer as a double that rounds to any shorter float as the integer does.
double to_number(Int x) {
  const bool negative = x < 0;
  uint64_t size = static_cast<uint64_t>(negative ? -x : x);
  if (size >> 53 != 0) size = (size >> 11 | ((size & 0x7ff) != 0 ? 1 : 0)) << 11;
  const double y = static_cast<double>(size);
  return negative ? -y : y;
}

uint64_t convert(uint64_t bits, const Form& form, uint32_t flags) {
  if (is_float(form.from)) {
    const double x = number_of(bits, form.from, (flags & kFlush) != 0);
    if (is_float(form.to)) return bits_from(form.integral != 0 ? integral(x, form.integral) : x, form.to, flags);
    return to_integer(x, form);
  }
  const Int x = integer_of(bits, form.from);
  if (!is_float(form.to)) return (flags & kSaturate) != 0 ? clamp(x, form.to) : static_cast<uint64_t>(x);
  if (form.to != kF64) return bits_from(to_number(x), form.to, flags);
  const Rounding mode(flags);
  const double y = x < 0 ? static_cast<double>(static_cast<int64_t>(x)) : static_cast<double>(static_cast<uint64_t>(x));
  return as<uint64_t>(y);
}

void any(Warp& w, const Instr& i) {
  const Form form(i.immediate);
  uint64_t out[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    out[l] = convert(raw(w, i.op[1], form.from_bytes, l), form, i.flags);
    // A register that is wider than the type holds it extended.
    if (!is_float(form.to)) out[l] = static_cast<uint64_t>(integer_of(out[l], form.to));
  }
  for_each(w.active, [&](int l) { put(w, i.op[0], form.to_bytes, l, out[l]); });
}

template <class D, class S>
void simple(Warp& w, const Instr& i) {
  map<D, S>(w, i, [](S a) { return static_cast<D>(a); });
}

void half_to_float(Warp& w, const Instr& i) {
  map<float, uint16_t>(w, i, [](uint16_t a) { return canonical(from_half(a)); });
}
void bfloat_to_float(Warp& w, const Instr& i) {
  map<float, uint16_t>(w, i, [](uint16_t a) { return canonical(from_bfloat(a)); });
}
void float_to_half(Warp& w, const Instr& i) {
  map<uint16_t, float>(w, i, [](float a) { return to_half(a); });
}
void float_to_bfloat(Warp& w, const Instr& i) {
  map<uint16_t, float>(w, i, [](float a) { return to_bfloat(a); });
}

// Two floats in one register, the first operand in the upper half.
template <bool kBfloat>
void pair(Warp& w, const Instr& i) {
  const uint32_t flags = i.flags;
  if ((flags & (kRoundMask | kRelu | kSaturate)) == 0) {
    map<uint32_t, float, float>(w, i, [](float a, float b) {
      const uint32_t high = kBfloat ? to_bfloat(a) : to_half(a), low = kBfloat ? to_bfloat(b) : to_half(b);
      return high << 16 | low;
    });
    return;
  }
  map<uint32_t, float, float>(w, i, [=](float a, float b) {
    const Kind kind = kBfloat ? kBf16 : kF16;
    return static_cast<uint32_t>(bits_from(a, kind, flags) << 16 | bits_from(b, kind, flags));
  });
}

// To nearest, ties away from zero (.rna) or to even (.rn).
void to_tf32(Warp& w, const Instr& i) {
  const bool even = i.immediate != 0;
  map<uint32_t, uint32_t>(w, i, [=](uint32_t a) {
    const uint32_t half = even ? 0xfff + (a >> 13 & 1) : 0x1000;
    return (a & 0x7fffffff) > 0x7f800000 ? kNanBits : (a + half) & 0xffffe000;
  });
}

}  // namespace

const Entry kConvert[] = {
    {"cvt", any},
    {"cvt.b64.u32", simple<uint64_t, uint32_t>},
    {"cvt.b64.s32", simple<uint64_t, int32_t>},
    {"cvt.b32.b64", simple<uint32_t, uint64_t>},
    {"cvt.b32.u16", simple<uint32_t, uint16_t>},
    {"cvt.b32.s16", simple<uint32_t, int16_t>},
    {"cvt.b16.b32", simple<uint16_t, uint32_t>},
    {"cvt.f32.f16", half_to_float},
    {"cvt.f32.bf16", bfloat_to_float},
    {"cvt.f16.f32", float_to_half},
    {"cvt.bf16.f32", float_to_bfloat},
    {"cvt.f32.s32", simple<float, int32_t>},
    {"cvt.f32.u32", simple<float, uint32_t>},
    {"cvt.f64.f32", simple<double, float>},
    {"cvt.f16x2.f32", pair<false>},
    {"cvt.bf16x2.f32", pair<true>},
    {"cvt.tf32.f32", to_tf32},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator
