// Moves, selections, predicates, and addresses of windows.
#include "elements.h"

namespace ortisan::emulator {

namespace {

// clang-format off
template <class T> UNARY(move, T, T, a)
// clang-format on

template <class T>
void select(Warp& w, const Instr& i) {
  const uint32_t bits = get_bits(w, i.op[3]) ^ (i.immediate != 0 ? kAll : 0);
  Result<T> d(w, i.op[0]);
  const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
#pragma GCC ivdep
  for (int l = 0; l < kLanes; ++l) d.to[l] = bits >> l & 1 ? a[l] : b[l];
  d.finish(w);
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

}  // namespace

const Entry kMove[] = {
    BITS("mov", move),
    BITS("selp", select),
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

#include "end_elements.h"
