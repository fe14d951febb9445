// Follows values that nobody wrote from shared memory through registers. They are an error where they count: stored to global
// memory, taken for an address, or deciding a branch.
#include "machine.h"

namespace ortisan::emulator {

uint32_t Warp::unwritten_lanes(uint32_t place, uint32_t* line) const {
  for (const Unwritten& value : unwritten) {
    if (value.place != place) continue;
    if (line != nullptr && value.lanes != 0) *line = value.line;
    return value.lanes;
  }
  return 0;
}

void Warp::mark_unwritten(uint32_t place, uint32_t lanes, uint32_t line) {
  for (Unwritten& value : unwritten) {
    if (value.place != place) continue;
    value.lanes |= lanes;
    value.line = line;
    return;
  }
  unwritten.push_back({place, lanes, line});
}

void Warp::follow(const Instr& instr) {
  uint32_t running = active, line = 0;
  if (instr.guard != kNone) {
    const uint32_t bits = *at<uint32_t>(instr.guard & ~kNegated);
    running &= (instr.guard & kNegated) != 0 ? ~bits : bits;
  }
  const uint32_t* sources = instr.op + instr.results;
  uint32_t lanes = instr.guard == kNone ? 0 : unwritten_lanes(instr.guard & ~kNegated, &line);
  const uint32_t decided = lanes & active;
  if (instr.use == kSelects) {
    const uint32_t chosen = *at<uint32_t>(sources[2]) ^ (instr.immediate != 0 ? kAll : 0);
    lanes = (unwritten_lanes(sources[0], &line) & chosen) | (unwritten_lanes(sources[1], &line) & ~chosen) |
            unwritten_lanes(sources[2], &line);
  } else {
    for (uint8_t k = instr.use == kNeedsAddress ? instr.sources - 1 : 0; k < instr.sources; ++k)
      if (sources[k] != kNone) lanes |= unwritten_lanes(sources[k], &line);
  }
  lanes &= running;
  const bool needed = instr.use == kNeeds || instr.use == kNeedsAddress;
  if (decided != 0 || (needed && lanes != 0)) {
    fail(instr, __builtin_ctz(decided | lanes),
         "uses what was read in line %u from shared memory that was never written", line);
    return;
  }
  if (instr.use == kPassOnTogether && lanes != 0) lanes = running;
  for (uint8_t k = 0; k < instr.results; ++k) {
    const uint32_t place = instr.op[k];
    if (place == kNone) continue;
    const uint32_t before = unwritten_lanes(place), after = (before & ~running) | lanes;
    if (before == after) continue;
    for (Unwritten& value : unwritten)
      if (value.place == place) value.lanes = 0;
    if (after != 0) mark_unwritten(place, after, line);
  }
  size_t kept = 0;
  for (const Unwritten& value : unwritten)
    if (value.lanes != 0) unwritten[kept++] = value;
  unwritten.resize(kept);
}

}  // namespace ortisan::emulator
