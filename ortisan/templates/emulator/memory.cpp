// ld, st and cp.async.
#include "access.h"
#include "tables.h"

namespace ortisan::emulator {

namespace {

bool check_shared(Warp& w, const Instr& i, const uint64_t* at, int bytes, uint32_t* unwritten) {
  bool good = true;
  for_each(w.active, [&](int l) {
    bool none = false;
    good = good && check_read(w, i, l, static_cast<uint32_t>(at[l]), static_cast<uint32_t>(bytes), &none);
    *unwritten |= uint32_t{none} << l;
  });
  return good;
}

template <class R, class T>
void widen(Warp& w, uint32_t place, const Addresses& a, int k) {
  Result<R> d(w, place);
  for (int l = 0; l < kLanes; ++l) {
    T value;
    std::memcpy(&value, a.host[l] + sizeof(T) * k, sizeof value);
    d.to[l] = static_cast<R>(value);
  }
  d.finish(w);
}

template <class R>
void fill(Warp& w, uint32_t place, const Addresses& a, const Shape& shape, int k) {
  switch (shape.bytes) {
    case 1: return shape.sign ? widen<R, int8_t>(w, place, a, k) : widen<R, uint8_t>(w, place, a, k);
    case 2: return shape.sign ? widen<R, int16_t>(w, place, a, k) : widen<R, uint16_t>(w, place, a, k);
    case 4: return shape.sign ? widen<R, int32_t>(w, place, a, k) : widen<R, uint32_t>(w, place, a, k);
    default: return widen<R, uint64_t>(w, place, a, k);
  }
}

void load_from(Warp& w, const Instr& i, Addresses& a, Space space, const Shape& shape) {
  if (!a.locate(w, i, space, shape.total(), false)) return;
  uint32_t unwritten = 0;
  if (space == Space::kShared && watches_shared(w) && !check_shared(w, i, a.at, shape.total(), &unwritten)) return;
  for (int k = 0; unwritten != 0 && k < shape.count; ++k)
    if (i.op[k] != kNone) w.mark_unwritten(i.op[k], unwritten, i.line);
  if (space == Space::kGlobal)
    w.block->loaded += static_cast<uint64_t>(__builtin_popcount(w.active)) * static_cast<uint64_t>(shape.total());
  if (shape.count == 1 && shape.bytes == shape.register_bytes && w.active == kAll && space != Space::kLocal &&
      a.contiguous(shape.bytes)) {
    std::memcpy(w.at<uint8_t>(i.op[0]), a.host[0], static_cast<size_t>(kLanes * shape.bytes));
    return;
  }
  for (int k = 0; k < shape.count; ++k) {
    if (i.op[k] == kNone) continue;
    if (shape.register_bytes == 2) fill<uint16_t>(w, i.op[k], a, shape, k);
    if (shape.register_bytes == 4) fill<uint32_t>(w, i.op[k], a, shape, k);
    if (shape.register_bytes == 8) fill<uint64_t>(w, i.op[k], a, shape, k);
  }
}

void store_to(Warp& w, const Instr& i, Addresses& a, Space space, const Shape& shape) {
  if (!a.locate(w, i, space, shape.total(), true)) return;
  if (space == Space::kGlobal)
    w.block->stored += static_cast<uint64_t>(__builtin_popcount(w.active)) * static_cast<uint64_t>(shape.total());
  const uint8_t* parts[8];
  for (int k = 0; k < shape.count; ++k) parts[k] = w.at<uint8_t>(i.op[k]);
  const bool watched = space == Space::kShared && watches_shared(w);
  if (shape.count == 1 && shape.bytes == shape.register_bytes && w.active == kAll && space == Space::kGlobal &&
      a.contiguous(shape.bytes)) {
    std::memcpy(a.host[0], parts[0], static_cast<size_t>(kLanes * shape.bytes));
    return;
  }
  bool good = true;
  for_each(w.active, [&](int l) {
    alignas(16) uint8_t value[32];
    for (int k = 0; k < shape.count; ++k)
      std::memcpy(value + k * shape.bytes, parts[k] + l * shape.register_bytes, static_cast<size_t>(shape.bytes));
    const auto bytes = static_cast<uint32_t>(shape.total());
    if (watched && good) good = check_write(w, i, l, static_cast<uint32_t>(a.at[l]), bytes, value);
    if (good) std::memcpy(a.host[l], value, bytes);
  });
  for (int k = 0; watched && good && !w.unwritten.empty() && k < shape.count; ++k) {
    for_each(w.active & w.unwritten_lanes(i.op[k]), [&](int l) {
      forget_write(w, static_cast<uint32_t>(a.at[l]) + static_cast<uint32_t>(k * shape.bytes),
                   static_cast<uint32_t>(shape.bytes));
    });
  }
}

template <Space kSpace, void (*kAccess)(Warp&, const Instr&, Addresses&, Space, const Shape&)>
void access(Warp& w, const Instr& i) {
  const Shape shape(i.flags);
  Addresses a;
  a.take(w, i, i.op[shape.count], shape.narrow_address, i.immediate);
  kAccess(w, i, a, kSpace, shape);
}

// Lanes of one window after the other.
template <void (*kAccess)(Warp&, const Instr&, Addresses&, Space, const Shape&)>
void access_generic(Warp& w, const Instr& i) {
  const Shape shape(i.flags);
  Addresses a;
  a.take(w, i, i.op[shape.count], shape.narrow_address, i.immediate);
  const uint32_t all = w.active;
  for (uint32_t left = all; left != 0 && !w.stopped;) {
    Space space;
    Addresses part = a;
    w.active = split_windows(part.at, left, &space);
    left &= ~w.active;
    kAccess(w, i, part, space, shape);
  }
  w.active = all;
}

void acquire(Warp& w, const Instr& i) {
  access_generic<load_from>(w, i);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
void release(Warp& w, const Instr& i) {
  __atomic_thread_fence(__ATOMIC_RELEASE);
  access_generic<store_to>(w, i);
}
void fence(Warp&, const Instr&) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// To, from, bytes to take or none (the rest is zeros), predicate to take none or none, bytes, offset of the first address.
void copy_async(Warp& w, const Instr& i) {
  const int bytes = static_cast<int>(i.op[4]);
  const int64_t to_offset = static_cast<int32_t>(i.op[5]), from_offset = i.immediate;
  const Shape shape(i.flags);
  Addresses to, from;
  to.take(w, i, i.op[0], shape.narrow_address, to_offset);
  from.take(w, i, i.op[1], false, from_offset);
  if (!to.locate(w, i, Space::kShared, bytes, true)) return;
  const uint32_t* sizes = i.op[2] == kNone ? nullptr : w.at<uint32_t>(i.op[2]);
  const uint32_t ignored = i.op[3] == kNone ? 0 : get_bits(w, i.op[3]);
  uint32_t read = 0, misfit = 0;
  for_each(w.active, [&](int l) {
    const uint32_t take = (ignored >> l & 1) != 0 ? 0 : sizes == nullptr ? static_cast<uint32_t>(bytes) : sizes[l];
    if (take == static_cast<uint32_t>(bytes)) read |= 1u << l;
    if (take != 0 && take < static_cast<uint32_t>(bytes)) misfit |= 1u << l;
    if (take > static_cast<uint32_t>(bytes)) w.fail(i, l, "copies %u bytes of a piece of %d", take, bytes);
  });
  if (w.stopped) return;
  const uint32_t all = w.active;
  // Whole pieces are looked up together, others byte by byte.
  w.active = read;
  if (read != 0 && !from.locate(w, i, Space::kGlobal, bytes, false)) return;
  Addresses partial = from;
  for_each(misfit, [&](int l) {
    for (uint32_t k = 0; k < sizes[l] && !w.stopped; ++k) {
      Addresses one = partial;
      w.active = 1u << l;
      one.take(w, i, i.op[1], false, from_offset + k);
      if (one.locate(w, i, Space::kGlobal, 1, false)) from.host[l] = one.host[l] - k;
    }
  });
  w.active = all;
  if (w.stopped) return;
  const bool watched = watches_shared(w);
  for_each(all, [&](int l) {
    if (w.stopped || (watched && !check_copy(w, i, l, static_cast<uint32_t>(to.at[l]), static_cast<uint32_t>(bytes))))
      return;
    w.copies.emplace_back();
    Copy& copy = w.copies.back();
    copy.to = static_cast<uint32_t>(to.at[l]);
    copy.bytes = static_cast<uint8_t>(bytes);
    copy.lane = static_cast<uint8_t>(l);
    copy.group = w.copy_group[l];
    copy.line = i.line;
    const size_t take = (read >> l & 1) != 0 ? static_cast<size_t>(bytes) : (misfit >> l & 1) != 0 ? sizes[l] : 0;
    std::memset(copy.data, 0, sizeof copy.data);
    if (take != 0) std::memcpy(copy.data, from.host[l], take);
    w.block->loaded += take;
  });
}

void commit(Warp& w, const Instr&) {
  for_each(w.active, [&](int l) { ++w.copy_group[l]; });
}

// Writes the copies of these lanes whose groups are not among the last `kept` ones, in the order in which they were started.
void complete(Warp& w, uint32_t kept) {
  const bool watched = watches_shared(w);
  size_t left = 0;
  for (size_t k = 0; k < w.copies.size(); ++k) {
    const Copy& copy = w.copies[k];
    const bool done = (w.active >> copy.lane & 1) != 0 && copy.group + kept < w.copy_group[copy.lane];
    if (!done) {
      if (left != k) w.copies[left] = copy;
      ++left;
      continue;
    }
    std::memcpy(w.block->shared + copy.to, copy.data, copy.bytes);
    if (watched) finish_copy(w, copy);
  }
  w.copies.resize(left);
}

void wait_group(Warp& w, const Instr& i) { complete(w, static_cast<uint32_t>(i.immediate)); }
void wait_all(Warp& w, const Instr& i) {
  commit(w, i);
  complete(w, 0);
}

}  // namespace

const Entry kMemory[] = {
    {"ld.global", access<Space::kGlobal, load_from>},
    {"ld.shared", access<Space::kShared, load_from>},
    {"ld.local", access<Space::kLocal, load_from>},
    {"ld.param", access<Space::kParameter, load_from>},
    {"ld.generic", access_generic<load_from>},
    {"ld.acquire", acquire},
    {"st.global", access<Space::kGlobal, store_to>},
    {"st.shared", access<Space::kShared, store_to>},
    {"st.local", access<Space::kLocal, store_to>},
    {"st.generic", access_generic<store_to>},
    {"st.release", release},
    {"fence", fence},
    {"cp.async", copy_async},
    {"cp.async.commit", commit},
    {"cp.async.wait", wait_group},
    {"cp.async.wait_all", wait_all},
    {nullptr, nullptr},
};

}  // namespace ortisan::emulator
