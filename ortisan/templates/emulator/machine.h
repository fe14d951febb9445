// The machine that runs a program: a warp is 32 lanes that execute one instruction at a time, a handler each.
//
// A register is an array of 32 lanes in the warp's file. Lanes that went another way at a branch wait in groups; of all groups
// that can go on, the one at the lowest address runs, so lanes meet again where their ways do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ortisan::emulator {

constexpr int kLanes = 32;
constexpr uint32_t kAll = ~uint32_t{0};
constexpr int kBarriers = 16;
constexpr int kMaxWarps = 32;

// Generic addresses of windows; those of global memory are the host's.
constexpr uint64_t kSharedWindow = uint64_t{1} << 56;
constexpr uint64_t kLocalWindow = uint64_t{2} << 56;
constexpr uint64_t kWindowMask = uint64_t{0xff} << 56;

class Warp;
struct Barrier;
struct Block;
struct Launch;
struct Instr;
using Handler = void (*)(Warp&, const Instr&);

// Bits of Instr::flags; what the others mean is the handler's affair.
enum Flag : uint32_t {
  kFlush = 1,  // .ftz
  kSaturate = 2,  // .sat
  kRoundShift = 2,
  kRoundMask = 3u << kRoundShift,  // .rn .rz .rm .rp, in this order
  kRelu = 1u << 4,
  kNan = 1u << 5,
  kFirstFlag = 1u << 6,
};

enum Check { kCheckBounds = 1, kCheckUninitialized = 2, kCheckRaces = 4 };  // as in emulator.h

constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint32_t kShared = uint32_t{1} << 31;  // of an operand: a constant of the block, not of the warp's file
constexpr uint32_t kNegated = 1;  // of a guard: the lowest bit

struct Instr {
  Handler run;
  const uint32_t* op;  // places of the operands
  int64_t immediate;
  uint32_t guard;
  uint32_t flags;
  uint32_t target;  // of a branch
  uint32_t line;
  uint8_t use, results, sources;  // Use; places that are registers
  const char* text;
};

// What an instruction does with values that nobody wrote.
enum Use : uint8_t { kPassOn, kNeeds, kNeedsAddress, kSelects, kPassOnTogether, kMultiplies };

// Lanes of a register that hold such a value: they were read from shared memory that was never written.
struct Unwritten {
  uint32_t place;
  uint32_t lanes;
  uint32_t line;
};

// Where a constant of a block comes from: a number, or a fact of the launch.
struct Constant {
  uint32_t place;
  uint32_t bytes;
  uint64_t value;
  const char* special;  // nullptr: the value
};

struct Kernel {
  std::string name, body;
  std::vector<Instr> code;
  std::vector<uint32_t> operands;
  std::vector<Constant> constants;
  std::vector<std::pair<std::string, uint32_t>> specials;  // of a lane: %tid.x and so on, place in the file
  std::vector<uint32_t> jumps;
  std::vector<std::pair<uint32_t, uint32_t>> parameters;  // offset, bytes
  uint32_t file_bytes = 0, constant_bytes = 0, parameter_bytes = 0;
  uint32_t static_shared = 0, dynamic_shared_align = 16, local_bytes = 0, max_threads = 1024;
};

enum class Wait : uint8_t { kReady, kCollective, kBarrier };

// Lanes of a warp at one address.
struct Group {
  uint32_t pc;
  uint32_t lanes;
  Wait wait;
  uint8_t barrier;
  const Instr* instr;
};

// One copy of cp.async; its bytes are taken when it is started, and written when its thread waits.
struct Copy {
  uint32_t to;
  uint8_t bytes;
  uint8_t lane;
  uint32_t group;
  uint32_t line;
  alignas(16) uint8_t data[16];
};

class Warp {
 public:
  template <class T>
  T* at(uint32_t place) {
    return reinterpret_cast<T*>(base[place >> 31] + (place & ~kShared));
  }
  // Runs until the warp has ended, waits at a barrier, or failed.
  void run();
  // What the current instruction did wrong, as seen by a lane.
  [[gnu::format(printf, 4, 5)]] void fail(const Instr& instr, int lane, const char* form, ...);

  // Lanes go two ways: some to an instruction, the others to the next one.
  void branch(uint32_t taken, uint32_t target);
  // The other groups may be at the same address, or at a lower one.
  void reschedule();
  // Whether all of these lanes are here. If not, those that are wait for the others, and the handler has to return.
  bool gather(const Instr& instr, uint32_t lanes);
  // Some of the running lanes execute the instruction later.
  void set_aside(const Instr& instr, uint32_t lanes);
  // The running lanes end.
  void leave();
  // The running lanes wait at a barrier of the block until it lets them go on.
  void wait_at(const Instr& instr, int barrier);
  // Gives lanes that a barrier lets go what bar.red made of all predicates.
  void take_votes(const Instr& instr, uint32_t lanes, const Barrier& barrier);

  bool has_ready() const;
  bool ended() const { return alive == 0; }

  uint8_t* base[2];  // the file, and the constants of the block
  uint32_t active = 0, pc = 0;
  uint32_t alive = 0;
  bool stopped = false, switched = false, desperate = false;
  int waiting = 0;  // groups that don't run
  Group groups[kLanes];

  const Instr* code = nullptr;
  Block* block = nullptr;
  uint32_t index = 0;  // in the block
  uint32_t skipped = 0;  // lanes of the running group that the guard of the instruction leaves out
  uint64_t executed = 0;
  uint32_t turns = 0;

  // Registers without a value are followed until the value counts: kernels may load more than they use.
  std::vector<Unwritten> unwritten;
  void mark_unwritten(uint32_t place, uint32_t lanes, uint32_t line);
  uint32_t unwritten_lanes(uint32_t place, uint32_t* line = nullptr) const;

  std::vector<Copy> copies;
  uint32_t copy_group[kLanes] = {};  // of each lane: the group that copies join now
  uint32_t carry = 0;

  // When another warp's accesses are ordered before this one's: clock[w] is the last moment of warp w that is known here.
  uint32_t clock[kMaxWarps] = {};

  alignas(64) uint8_t scratch[8][256];
  uint8_t* local = nullptr;

 private:
  void follow(const Instr& instr);
  void follow_product(const Instr& instr);
  void set_unwritten(uint32_t place, uint32_t lanes, uint32_t line);
  void push(uint32_t at, uint32_t lanes, Wait wait, const Instr* instr, int barrier = 0);
  bool pick();
  bool at_barrier() const;
};

// A barrier of a block: the threads that have come, and what bar.red makes of their predicates.
struct Barrier {
  uint32_t arrived = 0, expected = 0;  // 0: all threads that are alive
  uint32_t count = 0;
  uint32_t clock[kMaxWarps] = {};
  uint32_t waiters = 0;
};

// What is known of a word of shared memory. A thread is its number in the block + 1.
struct Cell {
  uint32_t write_clock;
  uint16_t writer;
  uint8_t written;  // bytes that have a value
  uint8_t write_bytes;  // bytes of the last write
  uint32_t read_clock[2];
  uint16_t reader[2];
  uint8_t read_bytes[2];
  uint8_t in_flight;  // bytes that a copy is on its way to
  uint8_t unused;
  uint32_t write_line;
  uint32_t read_line;
};

struct Block {
  Launch* launch = nullptr;
  const Kernel* kernel = nullptr;
  uint32_t id[3] = {};
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
  uint8_t* shared = nullptr;
  const uint8_t* parameters = nullptr;
  std::vector<Cell> cells;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  // The last allocation that an access was found in.
  uint64_t known_begin = 1, known_end = 0, known_writable = 0;
  uint64_t matrix_products = 0, loaded = 0, stored = 0;

  void start(uint64_t number);
  // To the end of all threads, or to a failure.
  void run();
  void arrive(int barrier, uint32_t threads, uint32_t expected, Warp& by, uint32_t votes);
  bool release_if_complete(int barrier);
  uint32_t alive() const;

 private:
  void report_deadlock();
};

struct Launch {
  const Kernel* kernel = nullptr;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared = 0, shared_bytes = 0;
  int checks = 0;
  std::vector<uint8_t> parameters;

  // The first failure counts; all threads stop soon after it.
  void fail(std::string text);
  bool failed() const;
  std::string error() const;

 private:
  volatile bool failed_ = false;
  std::string error_;
};

struct Entry {
  const char* name;
  Handler run;
};

// The handler of this name, or nullptr.
Handler find_handler(const std::string& name);

// Where live memory is: finds the allocation around an address.
struct Extent {
  uint64_t begin, end;
  bool writable;
};
bool find_extent(uint64_t address, Extent* extent);
std::string nearest_extent(uint64_t address);

}  // namespace ortisan::emulator
