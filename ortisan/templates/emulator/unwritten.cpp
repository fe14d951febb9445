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

// Whether a group of four lanes has one of these, a bit for each of the eight.
static uint32_t groups_of(uint32_t lanes) {
  uint32_t groups = 0;
  for (uint32_t g = 0; g < 8; ++g) groups |= static_cast<uint32_t>((lanes >> 4 * g & 0xfu) != 0) << g;
  return groups;
}

// The lanes for which a result of mma has no value. Registers of A are by turns of the row of a lane's group and of the row 8 below,
// those of B of the column that the group is the number of; the first half of the results is of the upper row. Two columns are in two
// registers, or in one of 16-bit sums. So a row that nobody wrote spoils its own sums only.
uint32_t Warp::unwritten_sums(const Instr& instr, uint8_t result, uint32_t* line) const {
  const uint32_t sums = instr.results, rows_and_columns = instr.sources - sums, columns = rows_and_columns / 3;
  const uint32_t* sources = instr.op + sums;
  const bool lower = result >= sums / 2;
  uint32_t lanes = unwritten_lanes(sources[rows_and_columns + result], line);
  for (uint32_t a = lower ? 1 : 0; a < 2 * columns; a += 2) {
    const uint32_t groups = groups_of(unwritten_lanes(sources[a], line));
    for (uint32_t g = 0; g < 8; ++g)
      if ((groups >> g & 1) != 0) lanes |= 0xfu << 4 * g;
  }
  for (uint32_t b = 2 * columns; b < rows_and_columns; ++b) {
    const uint32_t groups = groups_of(unwritten_lanes(sources[b], line));
    for (uint32_t n = 0; n < 8; ++n)
      if ((groups >> n & 1) != 0 && (sums == 2 || n % 2 == result % 2)) lanes |= 0x11111111u << n / 2;
  }
  return lanes;
}

void Warp::pass_on(uint32_t place, uint32_t running, uint32_t lanes, uint32_t line) {
  const uint32_t before = unwritten_lanes(place), after = (before & ~running) | lanes;
  if (before == after) return;
  for (Unwritten& value : unwritten)
    if (value.place == place) value.lanes = 0;
  if (after != 0) mark_unwritten(place, after, line);
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
  uint32_t passed[8];
  for (uint8_t k = 0; k < instr.results; ++k)
    passed[k % 8] = instr.use == kMultiplies ? unwritten_sums(instr, k, &line) & running : lanes;
  for (uint8_t k = 0; k < instr.results; ++k)
    if (instr.op[k] != kNone) pass_on(instr.op[k], running, passed[k % 8], line);
  size_t kept = 0;
  for (const Unwritten& value : unwritten)
    if (value.lanes != 0) unwritten[kept++] = value;
  unwritten.resize(kept);
}

}  // namespace ortisan::emulator
