// How a warp runs: instruction by instruction, one group of lanes at a time.
#include <sched.h>

#include <cstdarg>
#include <cstdio>

#include "program.h"

namespace ortisan::emulator {

namespace {

constexpr uint32_t kTurn =
    1u << 22;  // instructions after which other warps get a turn: a warp may spin on what they write
constexpr uint32_t kMaxTurns = 20000;

}  // namespace

void Warp::run() {
  stopped = false;
  uint32_t left = kTurn;
  if (active == 0 && !pick()) return;
  while (!stopped) {
    const Instr& instr = code[pc++];
    ++executed;
    if (!unwritten.empty()) {
      follow(instr);
      if (stopped) return;
    }
    if (instr.guard == kNone) {
      instr.run(*this, instr);
    } else {
      const uint32_t bits = *at<uint32_t>(instr.guard & ~kNegated);
      const uint32_t lanes = active & ((instr.guard & kNegated) != 0 ? ~bits : bits);
      if (lanes != 0) {
        skipped = active & ~lanes;
        active = lanes;
        switched = false;
        instr.run(*this, instr);
        if (!switched) active |= skipped;
        skipped = 0;
      }
    }
    if (--left == 0) {
      if (++turns > kMaxTurns) fail(instr, __builtin_ctz(active | (active == 0)), "the kernel does not end");
      sched_yield();
      return;
    }
  }
}

void Warp::push(uint32_t at_pc, uint32_t lanes, Wait wait, const Instr* instr, int barrier) {
  if (lanes != 0) groups[waiting++] = {at_pc, lanes, wait, static_cast<uint8_t>(barrier), instr};
}

bool Warp::has_ready() const {
  if (active != 0) return true;
  bool collective = false;
  for (int g = 0; g < waiting; ++g) {
    if (groups[g].wait == Wait::kReady) return true;
    collective = collective || groups[g].wait == Wait::kCollective;
  }
  return collective && !at_barrier();
}

bool Warp::at_barrier() const {
  for (int g = 0; g < waiting; ++g)
    if (groups[g].wait == Wait::kBarrier) return true;
  return false;
}

// Makes the group at the lowest address the running one, with all that are ready at the same address. When none is ready, one
// that waits for other lanes gets a last chance, because some of them may have ended; not while any wait at a barrier.
bool Warp::pick() {
  for (const Wait wanted : {Wait::kReady, Wait::kCollective}) {
    uint32_t lowest = kNone;
    for (int g = 0; g < waiting; ++g)
      if (groups[g].wait == wanted && groups[g].pc < lowest) lowest = groups[g].pc;
    if (lowest == kNone || (wanted == Wait::kCollective && at_barrier())) continue;
    active = 0;
    int kept = 0;
    for (int g = 0; g < waiting; ++g) {
      if (groups[g].wait == wanted && groups[g].pc == lowest)
        active |= groups[g].lanes;
      else
        groups[kept++] = groups[g];
    }
    waiting = kept;
    pc = lowest;
    switched = true;
    desperate = wanted == Wait::kCollective;
    return true;
  }
  active = 0;
  switched = true;
  stopped = true;
  return false;
}

void Warp::reschedule() {
  push(pc, active, Wait::kReady, nullptr);
  pick();
}

void Warp::branch(uint32_t taken, uint32_t to) {
  if (taken == 0) {
    if (waiting != 0) reschedule();
    return;
  }
  if (taken == active) {
    pc = to;
    return;
  }
  push(to, taken, Wait::kReady, nullptr);
  push(pc, active & ~taken, Wait::kReady, nullptr);
  pick();
}

void Warp::leave() {
  alive &= ~active;
  active = 0;
  push(pc, skipped, Wait::kReady, nullptr);
  pick();
}

bool Warp::gather(const Instr& instr, uint32_t lanes) {
  const uint32_t here = static_cast<uint32_t>(&instr - code);
  int kept = 0;
  uint32_t joined = 0;
  for (int g = 0; g < waiting; ++g) {
    if (groups[g].wait == Wait::kCollective && groups[g].pc == here)
      joined |= groups[g].lanes;
    else
      groups[kept++] = groups[g];
  }
  waiting = kept;
  active |= joined;
  if ((lanes & alive & ~active) == 0) {
    desperate = false;
    return true;
  }
  if (desperate) {
    char text[160];
    std::snprintf(text, sizeof text, "lanes 0x%08x of the warp have to reach it together, but only 0x%08x do",
                  lanes & alive, active);
    fail(instr, __builtin_ctz(active), "%s", text);
    return false;
  }
  push(here, active, Wait::kCollective, &instr);
  push(pc, skipped, Wait::kReady, nullptr);
  active = 0;
  pick();
  return false;
}

void Warp::set_aside(const Instr& instr, uint32_t lanes) {
  if (lanes == 0) return;
  push(static_cast<uint32_t>(&instr - code), lanes, Wait::kReady, nullptr);
  active &= ~lanes;
}

void Warp::wait_at(const Instr& instr, int barrier) {
  push(pc, active, Wait::kBarrier, &instr, barrier);
  push(pc, skipped, Wait::kReady, nullptr);
  active = 0;
  pick();
}

void Warp::fail(const Instr& instr, int lane, const char* form, ...) {
  char what[400];
  va_list arguments;
  va_start(arguments, form);
  std::vsnprintf(what, sizeof what, form, arguments);
  va_end(arguments);
  const Launch& launch = *block->launch;
  const uint32_t thread = index * kLanes + static_cast<uint32_t>(lane);
  const uint32_t x = thread % launch.block[0], yz = thread / launch.block[0];
  char text[1000];
  const std::string name = short_name(launch.kernel->name);
  std::snprintf(text, sizeof text, "%.200s%s, line %u (%s), block (%u, %u, %u), thread (%u, %u, %u): %s", name.c_str(),
                name.size() > 200 ? "..." : "", instr.line, instr.text, block->id[0], block->id[1], block->id[2], x,
                yz % launch.block[1], yz / launch.block[1], what);
  block->launch->fail(text);
  stopped = true;
}

}  // namespace ortisan::emulator
