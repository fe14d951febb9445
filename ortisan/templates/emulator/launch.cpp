// Runs a grid: thread blocks over threads of the host.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "program.h"

namespace ortisan::emulator {

namespace {

std::mutex guard;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

uint32_t special(const Block& block, const std::string& name) {
  const Launch& launch = *block.launch;
  if (name.compare(0, 7, "%ctaid.") == 0) return block.id[name[7] - 'x'];
  if (name.compare(0, 8, "%nctaid.") == 0) return launch.grid[name[8] - 'x'];
  if (name.compare(0, 6, "%ntid.") == 0) return launch.block[name[6] - 'x'];
  if (name == "%nwarpid") return (block.threads + kLanes - 1) / kLanes;
  if (name == "%nsmid") return 108;
  if (name == "%dynamic_smem_size") return launch.dynamic_shared;
  if (name == "%total_smem_size") return block.shared_bytes;
  return 0;  // %smid, %gridid
}

uint32_t lane_special(const Warp& w, const std::string& name, uint32_t lane) {
  const uint32_t* block = w.block->launch->block;
  const uint32_t thread = w.index * kLanes + lane;
  if (name == "%tid.x") return thread % block[0];
  if (name == "%tid.y") return thread / block[0] % block[1];
  if (name == "%tid.z") return thread / block[0] / block[1];
  if (name == "%laneid") return lane;
  if (name == "%warpid") return w.index;
  const uint32_t bit = 1u << lane;
  if (name == "%lanemask_eq") return bit;
  if (name == "%lanemask_lt") return bit - 1;
  if (name == "%lanemask_le") return bit | (bit - 1);
  if (name == "%lanemask_gt") return ~(bit | (bit - 1));
  return ~(bit - 1);  // %lanemask_ge
}

// The memory of one block at a time: registers, constants, shared and local memory.
class Arena {
 public:
  Arena(Launch& launch, uint32_t threads) {
    const Kernel& kernel = *launch.kernel;
    const size_t warps = (threads + kLanes - 1) / kLanes;
    block_.launch = &launch;
    block_.kernel = &kernel;
    block_.threads = threads;
    block_.parameters = launch.parameters.data();
    block_.shared_bytes = launch.shared_bytes;
    const size_t file = aligned(kernel.file_bytes), constants = aligned(kernel.constant_bytes);
    const size_t shared = aligned(block_.shared_bytes + 16), local = aligned(size_t{kLanes} * kernel.local_bytes);
    const size_t bytes = constants + shared + warps * (file + local) + 64;
    memory_ = static_cast<uint8_t*>(std::aligned_alloc(64, aligned(bytes)));
    std::memset(memory_, 0, bytes);
    constants_ = memory_;
    block_.shared = memory_ + constants;
    if ((launch.checks & (kCheckUninitialized | kCheckRaces)) != 0) block_.cells.resize(block_.shared_bytes / 4 + 1);
    block_.warps.resize(warps);
    uint8_t* next = block_.shared + shared;
    for (size_t k = 0; k < warps; ++k, next += file + local) {
      Warp& w = block_.warps[k];
      w.base[0] = next;
      w.base[1] = constants_;
      w.local = next + file;
      w.code = kernel.code.data();
      w.block = &block_;
      w.index = static_cast<uint32_t>(k);
    }
    for (const Constant& c : kernel.constants)
      if (c.special == nullptr) fill(c, c.value);
  }
  ~Arena() { std::free(memory_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void run(uint64_t number) {
    block_.start(number);
    for (const Constant& c : block_.kernel->constants) {
      if (c.special == nullptr) continue;
      const std::string name = c.special;
      fill(c, name == "%parameters" ? reinterpret_cast<uint64_t>(block_.parameters) : special(block_, name));
    }
    for (Warp& w : block_.warps)
      for (const auto& [name, place] : block_.kernel->specials)
        for (uint32_t l = 0; l < kLanes; ++l) w.at<uint32_t>(place)[l] = lane_special(w, name, l);
    std::memset(block_.shared, 0xff, block_.shared_bytes);
    block_.run();
  }

  // What was done by so many blocks.
  Totals done(uint64_t blocks) const {
    Totals totals;
    totals.blocks = blocks;
    for (const Warp& w : block_.warps) totals.instructions += w.executed;
    totals.matrix_products = block_.matrix_products;
    totals.loaded = block_.loaded;
    totals.stored = block_.stored;
    return totals;
  }

 private:
  void fill(const Constant& c, uint64_t value) {
    uint8_t* at = constants_ + (c.place & ~kShared);
    const int count = c.bytes == 1 ? 1 : kLanes;  // one byte: a predicate, whose lanes are the bits of a word
    const size_t bytes = c.bytes == 1 ? 4 : c.bytes;
    for (int l = 0; l < count; ++l) std::memcpy(at + static_cast<size_t>(l) * bytes, &value, bytes);
  }

  Block block_;
  uint8_t* memory_ = nullptr;
  uint8_t* constants_ = nullptr;
};

}  // namespace

void Launch::fail(std::string text) {
  const std::lock_guard<std::mutex> lock(guard);
  if (!failed_) error_ = std::move(text);
  failed_ = true;
}

bool Launch::failed() const { return failed_; }

std::string Launch::error() const {
  const std::lock_guard<std::mutex> lock(guard);
  return error_;
}

std::string run_grid(Launch& launch, int threads) {
  const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  const uint32_t size = launch.block[0] * launch.block[1] * launch.block[2];
  std::atomic<uint64_t> next{0};
  Totals totals;
  totals.launches = 1;
  const auto work = [&] {
    Arena arena(launch, size);
    uint64_t done = 0;
    for (uint64_t number; !launch.failed() && (number = next++) < blocks; ++done) arena.run(number);
    const std::lock_guard<std::mutex> lock(guard);
    totals.add(arena.done(done));
  };
  const auto helpers = static_cast<uint64_t>(std::max(threads, 1)) - 1;
  std::vector<std::thread> others;
  for (uint64_t k = 0; k < std::min(helpers, blocks - 1); ++k) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  count(launch.kernel->name, totals);
  return launch.error();
}

}  // namespace ortisan::emulator
