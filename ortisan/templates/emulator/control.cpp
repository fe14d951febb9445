// Branches, ends, barriers and fences.
#include <algorithm>

#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

enum : uint32_t { kArrive = kFirstFlag << 4, kAligned = kFirstFlag << 5 };
enum : uint32_t { kPopc = kFirstFlag, kAnd = kFirstFlag << 1, kOr = kFirstFlag << 2 };
constexpr uint32_t kVotes = kPopc | kAnd | kOr;

void nothing(Warp&, const Instr&) {}

// The begin of a block of instructions: other lanes may wait here, or before it.
void label(Warp& w, const Instr&) {
  if (w.waiting != 0) w.reschedule();
}

void jump(Warp& w, const Instr& i) { w.pc = i.target; }

void jump_if(Warp& w, const Instr& i) {
  const uint32_t bits = get_bits(w, i.op[0]);
  w.branch(w.active & (i.immediate != 0 ? ~bits : bits), i.target);
}

// A branch by index: lanes of one index at a time go their way.
void jump_table(Warp& w, const Instr& i) {
  const uint32_t* index = w.at<uint32_t>(i.op[0]);
  const std::vector<uint32_t>& jumps = w.block->kernel->jumps;
  const uint32_t count = static_cast<uint32_t>(i.immediate);
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(w.active));
  uint32_t same = 0;
  for_each(w.active, [&](int l) { same |= uint32_t{index[l] == index[first]} << l; });
  if (index[first] >= count) {
    w.fail(i, static_cast<int>(first), "index %u of a table with %u targets", index[first], count);
    return;
  }
  if (same != w.active) --w.pc;  // the others come here again
  w.branch(same, jumps[i.target + index[first]]);
}

void leave(Warp& w, const Instr&) { w.leave(); }

void trap(Warp& w, const Instr& i) { w.fail(i, __builtin_ctz(w.active), "the kernel trapped"); }

void assertion(Warp& w, const Instr& i) { w.fail(i, __builtin_ctz(w.active), "an assertion failed"); }

// bar and barrier, .sync, .arrive and .red: [predicate or register], barrier, threads or none, predicate.
void barrier(Warp& w, const Instr& i) {
  const bool arrive = (i.flags & kArrive) != 0;
  if ((i.flags & kAligned) != 0 && !w.gather(i, w.alive)) return;
  const int first = __builtin_ctz(w.active);
  const uint32_t number = w.at<uint32_t>(i.op[1])[first];
  const uint32_t expected = i.op[2] == kNone ? 0 : w.at<uint32_t>(i.op[2])[first];
  if (number >= kBarriers || expected % kLanes != 0) {
    w.fail(i, first, "barrier %u for %u threads; there are 16, for multiples of 32 threads", number, expected);
    return;
  }
  uint32_t votes = 0;
  if ((i.flags & kVotes) != 0) {
    const uint32_t bits = get_bits(w, i.op[3]) ^ (i.immediate != 0 ? kAll : 0);
    votes = static_cast<uint32_t>(__builtin_popcount(bits & w.active));
  }
  // Warps arrive whole where a number of threads is given, lanes that have ended included.
  const uint32_t lanes = expected != 0 && (i.flags & kAligned) != 0 ? kLanes : __builtin_popcount(w.active);
  Block& block = *w.block;
  block.arrive(static_cast<int>(number), lanes, expected, w, votes);
  if (arrive)
    ++w.clock[w.index];
  else
    w.wait_at(i, static_cast<int>(number));
  block.release_if_complete(static_cast<int>(number));
  if (!arrive && w.has_ready() && w.active == 0) w.reschedule();
}

// Lanes of a mask meet; what they did before is ordered for all of them.
void sync_warp(Warp& w, const Instr& i) {
  const int first = __builtin_ctz(w.active);
  if (w.gather(i, w.at<uint32_t>(i.op[0])[first])) ++w.clock[w.index];
}

// The instructions that the warp has executed stand for the time.
template <class T>
void clock(Warp& w, const Instr& i) {
  Result<T> d(w, i.op[0]);
  for (int l = 0; l < kLanes; ++l) d.to[l] = static_cast<T>(w.executed);
  d.finish(w);
}

}  // namespace

void Warp::take_votes(const Instr& i, uint32_t lanes, const Barrier& barrier) {
  const uint32_t before = active;
  active = lanes;
  if ((i.flags & kPopc) != 0) {
    const uint32_t count = barrier.count;
    map<uint32_t, uint32_t>(*this, i, [count](uint32_t) { return count; });
  } else if ((i.flags & kVotes) != 0) {
    const bool yes = (i.flags & kAnd) != 0 ? barrier.count == barrier.arrived : barrier.count != 0;
    set_bits(*this, i.op[0], yes ? kAll : 0);
  }
  active = before;
}

const Entry kControl[] = {
    {"nop", nothing},
    {"label", label},
    {"bra", jump},
    {"bra.if", jump_if},
    {"brx.idx", jump_table},
    {"exit", leave},
    {"trap", trap},
    {"assert", assertion},
    {"barrier", barrier},
    {"bar.warp", sync_warp},
    {"clock.b32", clock<uint32_t>},
    {"clock.b64", clock<uint64_t>},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator
