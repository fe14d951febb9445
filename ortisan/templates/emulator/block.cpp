// How a thread block runs: its warps in turn, from barrier to barrier.
#include <algorithm>
#include <cstdio>

#include "machine.h"

namespace ortisan::emulator {

void Block::start(uint64_t number) {
  const uint64_t x = launch->grid[0], y = launch->grid[1];
  id[0] = static_cast<uint32_t>(number % x);
  id[1] = static_cast<uint32_t>(number / x % y);
  id[2] = static_cast<uint32_t>(number / x / y);
  for (Barrier& barrier : barriers) barrier = Barrier();
  std::fill(cells.begin(), cells.end(), Cell());
  for (Warp& w : warps) {
    const uint32_t lanes = std::min<uint32_t>(kLanes, threads - w.index * kLanes);
    w.alive = w.active = lanes == kLanes ? kAll : (1u << lanes) - 1;
    w.pc = w.turns = w.skipped = 0;
    w.waiting = 0;
    w.desperate = w.switched = false;
    w.copies.clear();
    w.unwritten.clear();
    std::fill(std::begin(w.copy_group), std::end(w.copy_group), 0);
    std::fill(std::begin(w.clock), std::end(w.clock), 0);
    w.clock[w.index] = 1;
  }
}

uint32_t Block::alive() const {
  uint32_t count = 0;
  for (const Warp& w : warps) count += static_cast<uint32_t>(__builtin_popcount(w.alive));
  return count;
}

void Block::run() {
  for (bool progress = true; progress;) {
    progress = false;
    for (Warp& w : warps) {
      if (w.ended() || !w.has_ready()) continue;
      w.run();
      progress = true;
      if (launch->failed()) return;
    }
    for (int b = 0; !progress && b < kBarriers; ++b) progress = release_if_complete(b);
  }
  if (alive() != 0) report_deadlock();
}

void Block::arrive(int number, uint32_t arriving, uint32_t expected, Warp& by, uint32_t votes) {
  Barrier& barrier = barriers[number];
  barrier.arrived += arriving;
  barrier.expected = expected;
  barrier.count += votes;
  for (int k = 0; k < kMaxWarps; ++k) barrier.clock[k] = std::max(barrier.clock[k], by.clock[k]);
}

// Lets all that wait go on, when the threads that it expects have come. Their warps know now what each of them did before.
bool Block::release_if_complete(int number) {
  Barrier& barrier = barriers[number];
  if (barrier.arrived == 0 || barrier.arrived < (barrier.expected != 0 ? barrier.expected : alive())) return false;
  bool released = false;
  for (Warp& w : warps) {
    bool here = false;
    for (int g = 0; g < w.waiting; ++g) {
      Group& group = w.groups[g];
      if (group.wait != Wait::kBarrier || group.barrier != number) continue;
      group.wait = Wait::kReady;
      here = true;
      if (group.instr->flags >= kFirstFlag) w.take_votes(*group.instr, group.lanes, barrier);
    }
    if (!here) continue;
    released = true;
    for (int k = 0; k < kMaxWarps; ++k) w.clock[k] = std::max(w.clock[k], barrier.clock[k]);
    ++w.clock[w.index];
  }
  barrier = Barrier();
  return released;
}

void Block::report_deadlock() {
  Warp* first = nullptr;
  const Group* stuck = nullptr;
  uint32_t waiting = 0;
  for (Warp& w : warps) {
    for (int g = 0; g < w.waiting; ++g) {
      const Group& group = w.groups[g];
      if (group.instr == nullptr) continue;
      waiting += static_cast<uint32_t>(__builtin_popcount(group.lanes));
      if (stuck == nullptr || (stuck->wait == Wait::kBarrier && group.wait == Wait::kCollective)) {
        first = &w;
        stuck = &group;
      }
    }
  }
  if (stuck == nullptr) return;
  const int lane = __builtin_ctz(stuck->lanes);
  const uint32_t here = static_cast<uint32_t>(__builtin_popcount(stuck->lanes));
  if (stuck->wait == Wait::kCollective) {
    first->fail(*stuck->instr, lane, "%u lanes of the warp wait here for lanes that wait elsewhere", here);
    return;
  }
  const Barrier& barrier = barriers[stuck->barrier];
  const uint32_t expected = barrier.expected != 0 ? barrier.expected : alive();
  first->fail(*stuck->instr, lane, "barrier %d waits for %u threads, but only %u reach it", stuck->barrier, expected,
              barrier.arrived);
}

}  // namespace ortisan::emulator
