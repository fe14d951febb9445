// What is known of shared memory: which bytes have a value, who wrote and read them last, and when.
//
// An access is ordered before another one of a different thread when a barrier is between them. Each warp counts its barriers;
// what a warp knows of the others' counts tells which of their accesses are ordered before its own.
#include <algorithm>
#include <cstdio>

#include "access.h"

namespace ortisan::emulator {

namespace {

bool ordered(const Warp& w, uint32_t thread, uint32_t other, uint32_t clock) {
  if (other == thread) return true;
  const uint32_t warp = (other - 1) / kLanes;
  return warp == w.index ? clock < w.clock[warp] : clock <= w.clock[warp];
}

void name_thread(const Warp& w, uint32_t other, char* to, size_t size) {
  const uint32_t* block = w.block->launch->block;
  const uint32_t at = other - 1, yz = at / block[0];
  std::snprintf(to, size, "(%u, %u, %u)", at % block[0], yz % block[1], yz / block[1]);
}

void race(Warp& w, const Instr& i, int lane, uint32_t at, const char* what, uint32_t other, const char* did,
          uint32_t line) {
  char name[48];
  name_thread(w, other, name, sizeof name);
  w.fail(i, lane, "race: %s shared memory at 0x%x, which thread %s %s in line %u, with no barrier between", what, at,
         name, did, line);
}

// Calls f(cell, its bytes that are touched, their first address) for the words of an access, until it gives false.
template <class F>
bool words(Warp& w, uint32_t at, uint32_t bytes, F f) {
  for (uint32_t done = 0; done < bytes;) {
    const uint32_t begin = (at + done) & 3, count = std::min(4 - begin, bytes - done);
    const auto mask = static_cast<uint8_t>(((1u << count) - 1) << begin);
    if (!f(w.block->cells[(at + done) >> 2], mask, at + done)) return false;
    done += count;
  }
  return true;
}

bool check_before_write(Warp& w, const Instr& i, int lane, uint32_t thread, const Cell& cell, uint8_t mask, uint32_t at,
                        const void* value) {
  const bool races = (w.block->launch->checks & kCheckRaces) != 0;
  if ((cell.in_flight & mask) != 0) {
    w.fail(i, lane, "writes shared memory at 0x%x, which a cp.async of line %u is still on its way to", at,
           cell.write_line);
    return false;
  }
  if (!races) return true;
  for (int r = 0; r < 2; ++r) {
    if ((cell.read_bytes[r] & mask) != 0 && !ordered(w, thread, cell.reader[r], cell.read_clock[r])) {
      race(w, i, lane, at, "writes", cell.reader[r], "reads", cell.read_line);
      return false;
    }
  }
  if ((cell.write_bytes & mask) != 0 && !ordered(w, thread, cell.writer, cell.write_clock)) {
    const uint32_t count = static_cast<uint32_t>(__builtin_popcount(mask));
    if (value != nullptr && std::memcmp(w.block->shared + at, value, count) == 0) return true;  // both write the same
    race(w, i, lane, at, "writes", cell.writer, "writes", cell.write_line);
    return false;
  }
  return true;
}

void note_write(Warp& w, uint32_t thread, Cell& cell, uint8_t mask, uint32_t line) {
  const bool again = cell.writer == thread && cell.write_clock == w.clock[w.index];
  cell.write_bytes = again ? cell.write_bytes | mask : mask;
  cell.writer = static_cast<uint16_t>(thread);
  cell.write_clock = w.clock[w.index];
  cell.write_line = line;
  cell.written |= mask;
  cell.read_bytes[0] &= static_cast<uint8_t>(~mask);
  cell.read_bytes[1] &= static_cast<uint8_t>(~mask);
}

uint32_t thread_of(const Warp& w, int lane) { return w.index * kLanes + static_cast<uint32_t>(lane) + 1; }

}  // namespace

void forget_write(Warp& w, uint32_t at, uint32_t bytes) {
  words(w, at, bytes, [](Cell& cell, uint8_t mask, uint32_t) {
    cell.written &= static_cast<uint8_t>(~mask);
    return true;
  });
}

bool check_read(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes, bool* unwritten) {
  const uint32_t thread = thread_of(w, lane);
  const int checks = w.block->launch->checks;
  return words(w, at, bytes, [&](Cell& cell, uint8_t mask, uint32_t where) {
    if ((cell.in_flight & mask) != 0 && (checks & kCheckUninitialized) != 0) {
      w.fail(i, lane, "reads shared memory at 0x%x, which a cp.async of line %u is still on its way to", where,
             cell.write_line);
      return false;
    }
    if ((~cell.written & mask) != 0 && (checks & kCheckUninitialized) != 0) *unwritten = true;
    if ((checks & kCheckRaces) != 0 && (cell.write_bytes & mask) != 0 &&
        !ordered(w, thread, cell.writer, cell.write_clock)) {
      race(w, i, lane, where, "reads", cell.writer, "writes", cell.write_line);
      return false;
    }
    if (cell.reader[0] != thread) {
      cell.reader[1] = cell.reader[0], cell.read_clock[1] = cell.read_clock[0], cell.read_bytes[1] = cell.read_bytes[0];
      cell.read_bytes[0] = 0;
    }
    cell.reader[0] = static_cast<uint16_t>(thread);
    cell.read_clock[0] = w.clock[w.index];
    cell.read_bytes[0] |= mask;
    cell.read_line = i.line;
    return true;
  });
}

bool check_write(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes, const void* value) {
  const uint32_t thread = thread_of(w, lane);
  return words(w, at, bytes, [&](Cell& cell, uint8_t mask, uint32_t where) {
    const void* part = static_cast<const uint8_t*>(value) + (where - at);
    if (!check_before_write(w, i, lane, thread, cell, mask, where, part)) return false;
    note_write(w, thread, cell, mask, i.line);
    return true;
  });
}

bool check_copy(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes) {
  const uint32_t thread = thread_of(w, lane);
  return words(w, at, bytes, [&](Cell& cell, uint8_t mask, uint32_t where) {
    if (!check_before_write(w, i, lane, thread, cell, mask, where, nullptr)) return false;
    note_write(w, thread, cell, mask, i.line);
    cell.in_flight |= mask;
    return true;
  });
}

void finish_copy(Warp& w, const Copy& copy) {
  const uint32_t thread = thread_of(w, copy.lane);
  words(w, copy.to, copy.bytes, [&](Cell& cell, uint8_t mask, uint32_t) {
    cell.in_flight &= static_cast<uint8_t>(~mask);
    note_write(w, thread, cell, mask, copy.line);
    return true;
  });
}

// Atomics don't race with each other, and what they leave has a value. They read a value, too.
bool check_atomic(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes) {
  return words(w, at, bytes, [&](Cell& cell, uint8_t mask, uint32_t where) {
    if ((~cell.written & mask) != 0 && (w.block->launch->checks & kCheckUninitialized) != 0) {
      w.fail(i, lane, "updates shared memory at 0x%x, which was never written", where);
      return false;
    }
    return true;
  });
}

}  // namespace ortisan::emulator
