#include "access.h"

namespace ortisan::emulator {

bool Addresses::take(Warp& w, const Instr&, uint32_t place, bool narrow, int64_t offset) {
  const uint64_t add = static_cast<uint64_t>(offset);
  if (narrow) {
    const uint32_t* a = w.at<uint32_t>(place);
    for (int l = 0; l < kLanes; ++l) at[l] = static_cast<uint32_t>(a[l] + add);
  } else {
    const uint64_t* a = w.at<uint64_t>(place);
    for (int l = 0; l < kLanes; ++l) at[l] = a[l] + add;
  }
  return true;
}

namespace {

const char* name_of(Space space) {
  static const char* const names[] = {"global", "shared", "local", "parameter"};
  return names[static_cast<int>(space)];
}

bool fail_window(Warp& w, const Instr& i, int lane, Space space, uint64_t at, int bytes, uint64_t size) {
  w.fail(i, lane, "%d bytes at 0x%llx of %s memory, which has %llu bytes", bytes, static_cast<unsigned long long>(at),
         name_of(space), static_cast<unsigned long long>(size));
  return false;
}

// Looks each lane's address up, when they are not all in the allocation that was used last.
bool find_all(Warp& w, const Instr& i, const uint64_t* at, uint64_t bytes, bool store) {
  Block& block = *w.block;
  bool good = true;
  for_each(w.active, [&](int l) {
    if (!good || (at[l] >= block.known_begin && at[l] + bytes <= block.known_end && (!store || block.known_writable))) {
      return;
    }
    Extent extent;
    if (!find_extent(at[l], &extent) || at[l] + bytes > extent.end) {
      w.fail(i, l, "%s of %llu bytes at 0x%llx of global memory, outside of every live allocation; %s",
             store ? "store" : "load", static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(at[l]),
             nearest_extent(at[l]).c_str());
      good = false;
    } else if (store && !extent.writable) {
      w.fail(i, l, "store to read-only memory at 0x%llx", static_cast<unsigned long long>(at[l]));
      good = false;
    }
    block.known_begin = extent.begin, block.known_end = extent.end, block.known_writable = extent.writable;
  });
  return good;
}

}  // namespace

bool Addresses::locate(Warp& w, const Instr& i, Space space, int bytes, bool store) {
  const int first = __builtin_ctz(w.active);
  if (w.active != kAll)
    for (int l = 0; l < kLanes; ++l) at[l] = w.active >> l & 1 ? at[l] : at[first];
  uint64_t low = at[0], high = at[0], any = 0;
  for (int l = 0; l < kLanes; ++l) {
    low = at[l] < low ? at[l] : low;
    high = at[l] > high ? at[l] : high;
    any |= at[l];
  }
  const uint64_t size = static_cast<uint64_t>(bytes);
  if ((any & (size - 1)) != 0) {
    for (int l = 0; l < kLanes; ++l) {
      if ((at[l] & (size - 1)) == 0 || (w.active >> l & 1) == 0) continue;
      w.fail(i, l, "0x%llx of %s memory is not aligned to %d bytes", static_cast<unsigned long long>(at[l]),
             name_of(space), bytes);
      return false;
    }
  }
  Block& block = *w.block;
  if (space == Space::kGlobal) {
    const bool known = low >= block.known_begin && high + size <= block.known_end && (!store || block.known_writable);
    if (!known && (block.launch->checks & kCheckBounds) != 0 && !find_all(w, i, at, size, store)) return false;
    for (int l = 0; l < kLanes; ++l) host[l] = reinterpret_cast<uint8_t*>(at[l]);
    return true;
  }
  uint64_t limit = block.shared_bytes;
  if (space == Space::kLocal) limit = block.kernel->local_bytes;
  if (space == Space::kParameter) limit = block.kernel->parameter_bytes;
  if (high + size > limit || high + size < size) {
    for (int l = 0; l < kLanes; ++l)
      if ((w.active >> l & 1) != 0 && (at[l] + size > limit || at[l] + size < size))
        return fail_window(w, i, l, space, at[l], bytes, limit);
  }
  uint8_t* base = space == Space::kShared ? block.shared : const_cast<uint8_t*>(block.parameters);
  for (int l = 0; l < kLanes; ++l)
    host[l] = (space == Space::kLocal ? w.local + static_cast<uint64_t>(l) * limit : base) + at[l];
  return true;
}

bool Addresses::contiguous(int bytes) const {
  uint64_t off = 0;
  for (int l = 0; l < kLanes; ++l) off |= (at[l] - at[0]) ^ static_cast<uint64_t>(l * bytes);
  return off == 0;
}

uint32_t split_windows(uint64_t* at, uint32_t lanes, Space* space) {
  const uint64_t window = at[__builtin_ctz(lanes)] & kWindowMask;
  uint32_t same = 0;
  for (int l = 0; l < kLanes; ++l) {
    const bool here = (lanes >> l & 1) != 0 && (at[l] & kWindowMask) == window;
    same |= uint32_t{here} << l;
    if (here && window != 0 && window <= kLocalWindow) at[l] &= ~kWindowMask;
  }
  *space = window == kSharedWindow ? Space::kShared : window == kLocalWindow ? Space::kLocal : Space::kGlobal;
  return same;
}

}  // namespace ortisan::emulator
