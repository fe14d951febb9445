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
  if (instr.use == kMultiplies) return follow_product(instr);
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
  for (uint8_t k = 0; k < instr.results; ++k)
    if (instr.op[k] != kNone) set_unwritten(instr.op[k], (unwritten_lanes(instr.op[k]) & ~running) | lanes, line);
}

// The products of m16n8: lanes 4g to 4g+3 have rows g and g+8 of A, C and D, in every other register, and column g of B; lane
// 4g+t has columns 2t and 2t+1 of C and D. An element of D has no value where its row of A, its column of B or its C has none.
void Warp::follow_product(const Instr& instr) {
  const uint8_t many = instr.results;  // registers of C and D
  const uint8_t count = static_cast<uint8_t>((instr.sources - many) / 3);  // of B
  const uint32_t* sources = instr.op + many;
  uint32_t line = 0, rows[2] = {0, 0}, columns = 0;
  for (uint8_t k = 0; k < 2 * count; ++k) rows[k & 1] |= unwritten_lanes(sources[k], &line);
  for (uint8_t k = 2 * count; k < 3 * count; ++k) columns |= unwritten_lanes(sources[k], &line);
  uint32_t found[4];
  for (uint8_t k = 0; k < many; ++k) {
    uint32_t lanes = unwritten_lanes(sources[3 * count + k], &line);
    const uint32_t own_rows = rows[many == 4 ? k >> 1 : k];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t column = lane % 4 * 2;
      const bool row = (own_rows >> (lane & ~3u) & 0xf) != 0;
      const bool first = (columns >> 4 * column & 0xf) != 0, second = (columns >> 4 * (column + 1) & 0xf) != 0;
      if (row || (many == 4 ? ((k & 1) != 0 ? second : first) : first || second)) lanes |= 1u << lane;
    }
    found[k] = lanes;
  }
  for (uint8_t k = 0; k < many; ++k) set_unwritten(instr.op[k], found[k], line);
}

void Warp::set_unwritten(uint32_t place, uint32_t lanes, uint32_t line) {
  if (unwritten_lanes(place) == lanes) return;
  size_t kept = 0;
  for (const Unwritten& value : unwritten)
    if (value.place != place) unwritten[kept++] = value;
  unwritten.resize(kept);
  if (lanes != 0) unwritten.push_back({place, lanes, line});
}

}  // namespace ortisan::emulator
