// Addresses of a warp, checked and made host addresses.
#pragma once

#include "lanes.h"

namespace ortisan::emulator {

enum class Space { kGlobal, kShared, kLocal, kParameter };

// What flags say of a load or a store.
struct Shape {
  int bytes, count, register_bytes;
  bool sign, narrow_address;

  explicit Shape(uint32_t flags)
      : bytes(1 << (flags >> 8 & 7)), count(flags >> 12 & 15), register_bytes(1 << (flags >> 16 & 7)),
        sign((flags >> 20 & 1) != 0), narrow_address((flags >> 21 & 1) != 0) {}
  int total() const { return bytes * count; }
};

// Addresses in the space, and where they are in this process. Lanes that don't run have those of one that does.
struct Addresses {
  alignas(64) uint64_t at[kLanes];
  uint8_t* host[kLanes];

  // False after a failure.
  bool take(Warp& w, const Instr& i, uint32_t place, bool narrow, int64_t offset);
  bool locate(Warp& w, const Instr& i, Space space, int bytes, bool store);
  // Whether the lanes' places follow each other.
  bool contiguous(int bytes) const;
};

// The lanes whose generic addresses are in one window with the first of them, whose addresses become those in that window.
uint32_t split_windows(uint64_t* at, uint32_t lanes, Space* space);

// What is known of shared memory (shadow.cpp). False after a failure.
// `unwritten` becomes true where a byte was never written, which is no failure yet.
bool check_read(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes, bool* unwritten);
// Bytes have no value any more.
void forget_write(Warp& w, uint32_t at, uint32_t bytes);
bool check_write(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes, const void* value);
bool check_copy(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes);
void finish_copy(Warp& w, const Copy& copy);
bool check_atomic(Warp& w, const Instr& i, int lane, uint32_t at, uint32_t bytes);
inline bool watches_shared(const Warp& w) { return !w.block->cells.empty(); }

}  // namespace ortisan::emulator
