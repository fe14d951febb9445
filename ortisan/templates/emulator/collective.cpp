// What lanes of a warp do together: shfl, vote, match, redux, activemask.
#include <algorithm>

#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

// Waits until all lanes of the running lanes' mask are here; false when they are not, or a lane is not in its own mask.
// Lanes with another mask than the first one's run after them, as an instruction of their own.
bool meet(Warp& w, const Instr& i, uint32_t place) {
  const uint32_t* masks = w.at<uint32_t>(place);
  const uint32_t mask = masks[__builtin_ctz(w.active)];
  uint32_t same = 0;
  for_each(w.active, [&](int l) { same |= uint32_t{masks[l] == mask} << l; });
  if ((same & ~mask) != 0) {
    w.fail(i, __builtin_ctz(same & ~mask), "the lane is not in its own mask 0x%08x", mask);
    return false;
  }
  w.set_aside(i, w.active & ~same);
  return w.gather(i, mask);
}

enum : uint32_t { kUp = kFirstFlag, kDown = kFirstFlag << 1, kBfly = kFirstFlag << 2, kIdx = kFirstFlag << 3 };

// Result, predicate or none, a, b, c, mask.
void shuffle(Warp& w, const Instr& i) {
  if (!meet(w, i, i.op[5])) return;
  const uint32_t *b = w.at<uint32_t>(i.op[3]), *c = w.at<uint32_t>(i.op[4]);
  uint32_t from[kLanes];
  std::memcpy(from, w.at<uint32_t>(i.op[2]), sizeof from);
  const uint32_t here = w.active;
  uint32_t valid = 0, wrong = 0;
  Result<uint32_t> d(w, i.op[0]);
  for (int l = 0; l < kLanes; ++l) {
    const int by = static_cast<int>(b[l] & 31), clamp = static_cast<int>(c[l] & 31),
              segment = static_cast<int>(c[l] >> 8 & 31);
    const int most = (l & segment) | (clamp & ~segment), least = l & segment;
    int source = l;
    bool inside = false;
    if ((i.flags & kUp) != 0) source = l - by, inside = source >= most;
    if ((i.flags & kDown) != 0) source = l + by, inside = source <= most;
    if ((i.flags & kBfly) != 0) source = l ^ by, inside = source <= most;
    if ((i.flags & kIdx) != 0) source = least | (by & ~segment), inside = source <= most;
    if (!inside) source = l;
    valid |= uint32_t{inside} << l;
    wrong |= uint32_t{(here >> source & 1) == 0} << l;
    d.to[l] = from[source];
  }
  wrong &= here;
  if (wrong != 0 && (w.block->launch->checks & kCheckUninitialized) != 0) {
    w.fail(i, __builtin_ctz(wrong), "takes the value of a lane that is not there; only 0x%08x are", here);
    return;
  }
  d.finish(w);
  if (i.op[1] != kNone) set_bits(w, i.op[1], valid);
}

enum : uint32_t {
  kVoteAll = kFirstFlag,
  kVoteAny = kFirstFlag << 1,
  kVoteUni = kFirstFlag << 2,
  kBallot = kFirstFlag << 3
};

// Result, predicate, mask; immediate: the predicate is negated.
void vote(Warp& w, const Instr& i) {
  if (!meet(w, i, i.op[2])) return;
  const uint32_t here = w.active, yes = (get_bits(w, i.op[1]) ^ (i.immediate != 0 ? kAll : 0)) & here;
  if ((i.flags & kBallot) != 0) {
    for_each(here, [&](int l) { w.at<uint32_t>(i.op[0])[l] = yes; });
    return;
  }
  const bool result = (i.flags & kVoteAll) != 0   ? yes == here
                      : (i.flags & kVoteAny) != 0 ? yes != 0
                                                  : yes == here || yes == 0;
  set_bits(w, i.op[0], result ? kAll : 0);
}

// match.any: the lanes that have the same value. match.all: all lanes if they have, else none; result, predicate or none, a, mask.
template <class T>
void match_any(Warp& w, const Instr& i) {
  if (!meet(w, i, i.op[3])) return;
  T a[kLanes];
  std::memcpy(a, w.at<T>(i.op[2]), sizeof a);
  uint32_t* to = w.at<uint32_t>(i.op[0]);
  for_each(w.active, [&](int l) {
    to[l] = 0;
    for_each(w.active, [&](int m) { to[l] |= uint32_t{a[l] == a[m]} << m; });
  });
}
template <class T>
void match_all(Warp& w, const Instr& i) {
  if (!meet(w, i, i.op[3])) return;
  const T* a = w.at<T>(i.op[2]);
  bool same = true;
  for_each(w.active, [&](int l) { same = same && a[l] == a[__builtin_ctz(w.active)]; });
  const uint32_t lanes = same ? w.active : 0;
  for_each(w.active, [&](int l) { w.at<uint32_t>(i.op[0])[l] = lanes; });
  if (i.op[1] != kNone) set_bits(w, i.op[1], same ? kAll : 0);
}

// Result, a, mask.
template <class T, class F>
void reduce(Warp& w, const Instr& i, F f) {
  if (!meet(w, i, i.op[2])) return;
  const T* a = w.at<T>(i.op[1]);
  T all = a[__builtin_ctz(w.active)];
  for_each(w.active & (w.active - 1), [&](int l) { all = f(all, a[l]); });
  for_each(w.active, [&](int l) { w.at<T>(i.op[0])[l] = all; });
}
void reduce_add(Warp& w, const Instr& i) {
  reduce<uint32_t>(w, i, [](uint32_t a, uint32_t b) { return a + b; });
}
void reduce_and(Warp& w, const Instr& i) {
  reduce<uint32_t>(w, i, [](uint32_t a, uint32_t b) { return a & b; });
}
void reduce_or(Warp& w, const Instr& i) {
  reduce<uint32_t>(w, i, [](uint32_t a, uint32_t b) { return a | b; });
}
void reduce_xor(Warp& w, const Instr& i) {
  reduce<uint32_t>(w, i, [](uint32_t a, uint32_t b) { return a ^ b; });
}
template <class T>
void reduce_min(Warp& w, const Instr& i) {
  reduce<T>(w, i, [](T a, T b) { return std::min(a, b); });
}
template <class T>
void reduce_max(Warp& w, const Instr& i) {
  reduce<T>(w, i, [](T a, T b) { return std::max(a, b); });
}

void active_mask(Warp& w, const Instr& i) {
  const uint32_t here = w.active;
  Result<uint32_t> d(w, i.op[0]);
  for (int l = 0; l < kLanes; ++l) d.to[l] = here;
  d.finish(w);
}

}  // namespace

const Entry kWarp[] = {
    {"shfl", shuffle},
    {"vote", vote},
    {"match.any.b32", match_any<uint32_t>},
    {"match.any.b64", match_any<uint64_t>},
    {"match.all.b32", match_all<uint32_t>},
    {"match.all.b64", match_all<uint64_t>},
    {"redux.add", reduce_add},
    {"redux.and", reduce_and},
    {"redux.or", reduce_or},
    {"redux.xor", reduce_xor},
    {"redux.min.s32", reduce_min<int32_t>},
    {"redux.min.u32", reduce_min<uint32_t>},
    {"redux.max.s32", reduce_max<int32_t>},
    {"redux.max.u32", reduce_max<uint32_t>},
    {"activemask", active_mask},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator
