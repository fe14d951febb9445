// atom and red.
#include <cmath>
#include <type_traits>

#include "access.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

template <size_t kBytes>
using Bits = std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>;

// Replaces what is at an address by f of it, while nobody else does, and gives what was there.
template <class T, class F>
T exchange(uint8_t* at, F f) {
  using B = Bits<sizeof(T)>;
  auto* word = reinterpret_cast<B*>(at);
  B before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(word, &before, as<B>(f(as<T>(before))), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return as<T>(before);
}

// Result or none, address, b, c or none.
template <class T, class F>
void update(Warp& w, const Instr& i, F f) {
  const Shape shape(i.flags);
  Addresses all;
  all.take(w, i, i.op[1], shape.narrow_address, i.immediate);
  const bool generic = (i.flags >> 22 & 1) != 0;
  const uint32_t lanes = w.active;
  T* to = i.op[0] == kNone ? nullptr : w.at<T>(i.op[0]);
  const T *b = w.at<T>(i.op[2]), *c = i.op[3] == kNone ? b : w.at<T>(i.op[3]);
  for (uint32_t left = lanes; left != 0 && !w.stopped;) {
    Addresses a = all;
    Space space = (i.flags >> 23 & 1) != 0 ? Space::kShared : Space::kGlobal;
    if (generic) w.active = split_windows(a.at, left, &space);
    left &= ~w.active;
    if (!a.locate(w, i, space, sizeof(T), true)) break;
    if (space == Space::kGlobal) w.block->stored += static_cast<uint64_t>(__builtin_popcount(w.active)) * sizeof(T);
    for_each(w.active, [&](int l) {
      if (space == Space::kShared && watches_shared(w)) {
        if (!check_atomic(w, i, l, static_cast<uint32_t>(a.at[l]), sizeof(T))) return;
      }
      const T x = b[l], y = c[l];
      const T before = exchange<T>(a.host[l], [&](T old) { return f(old, x, y); });
      if (to != nullptr) to[l] = before;
    });
  }
  w.active = lanes;
}

#define UPDATE(NAME, EXPRESSION)                                                                                 \
  template <class T>                                                                                             \
  void NAME(Warp& w, const Instr& i) {                                                                           \
    update<T>(w, i, [](T a, [[maybe_unused]] T b, [[maybe_unused]] T c) { return static_cast<T>(EXPRESSION); }); \
  }
UPDATE(add, a + b)
UPDATE(minimum, a < b ? a : b)
UPDATE(maximum, a > b ? a : b)
UPDATE(and_, a& b)
UPDATE(or_, a | b)
UPDATE(xor_, a ^ b)
UPDATE(swap, b)
UPDATE(swap_if, a == b ? c : a)
UPDATE(increment, a >= b ? 0 : a + 1)
UPDATE(decrement, a == 0 || a > b ? b : a - 1)

uint16_t half_sum(uint16_t a, uint16_t b) { return to_half(from_half(a) + from_half(b)); }
uint16_t bfloat_sum(uint16_t a, uint16_t b) { return to_bfloat(from_bfloat(a) + from_bfloat(b)); }

template <uint16_t (*kSum)(uint16_t, uint16_t)>
void add_half(Warp& w, const Instr& i) {
  update<uint16_t>(w, i, [](uint16_t a, uint16_t b, uint16_t) { return kSum(a, b); });
}
template <uint16_t (*kSum)(uint16_t, uint16_t)>
void add_halves(Warp& w, const Instr& i) {
  update<uint32_t>(w, i, [](uint32_t a, uint32_t b, uint32_t) {
    const uint32_t high = kSum(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16));
    return high << 16 | kSum(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
  });
}

#define BITS(NAME, F) \
  {"atom." NAME ".b32", F<uint32_t>}, { "atom." NAME ".b64", F<uint64_t> }
#define ORDERED(NAME, F)                                                                                       \
  {"atom." NAME ".u32", F<uint32_t>}, {"atom." NAME ".u64", F<uint64_t>}, {"atom." NAME ".s32", F<int32_t>}, { \
    "atom." NAME ".s64", F<int64_t>                                                                            \
  }

}  // namespace

const Entry kAtomic[] = {
    BITS("add", add),
    ORDERED("min", minimum),
    ORDERED("max", maximum),
    BITS("and", and_),
    BITS("or", or_),
    BITS("xor", xor_),
    BITS("exch", swap),
    BITS("cas", swap_if),
    {"atom.cas.b16", swap_if<uint16_t>},
    {"atom.inc.u32", increment<uint32_t>},
    {"atom.dec.u32", decrement<uint32_t>},
    {"atom.add.f32", add<float>},
    {"atom.add.f64", add<double>},
    {"atom.add.f16", add_half<half_sum>},
    {"atom.add.bf16", add_half<bfloat_sum>},
    {"atom.add.f16x2", add_halves<half_sum>},
    {"atom.add.bf16x2", add_halves<bfloat_sum>},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator

#undef UPDATE
#undef BITS
#undef ORDERED
