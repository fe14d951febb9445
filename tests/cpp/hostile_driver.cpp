// Runs every graph of a library on hostile shapes: dims of 0, 1 and 2^60, products that overflow, and all of them at once.
//
//   hostile_driver RUNS SEED
//
// A run is what a caller does: bind the symbols, check the sizes, take memory of exactly the size that was asked for, run. What
// would take more than a few megabytes counts as refused, as an allocator would. The sanitizers judge; a run that does not end
// within seconds is a failure, too.
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "execution.h"
#include "sizes.h"

using namespace ortisan;

namespace {

static_assert((MaybeInt(INT64_MAX) - 1 + 1).is(INT64_MAX));
static_assert(!(MaybeInt(INT64_MAX) + 1).known && !(MaybeInt(INT64_MIN) - 1).known);
static_assert(!(MaybeInt(int64_t(1) << 32) * (int64_t(1) << 31)).known);
static_assert((MaybeInt(int64_t(1) << 32) * (int64_t(1) << 32) * 0).is(0));
static_assert(!floor_div(MaybeInt(INT64_MIN), MaybeInt(-1)).known && floor_div(MaybeInt(-7), MaybeInt(2)).is(-4));
static_assert(!round_up(MaybeInt(INT64_MAX), MaybeInt(64)).known && round_up(MaybeInt(65), MaybeInt(64)).is(128));

constexpr int64_t most_memory = int64_t(8) << 20;
constexpr unsigned most_seconds = 20;
constexpr int64_t huge[] = {(int64_t(1) << 31) - 1, int64_t(1) << 31, (int64_t(1) << 32) + 1,
                            int64_t(1) << 44,       int64_t(1) << 47, int64_t(1) << 52,
                            90425216047595841,      int64_t(1) << 60, int64_t(1) << 62,
                            INT64_MAX - 1,          INT64_MAX};

char current[1000];
void say_current() { (void)!write(2, current, std::strlen(current)); }

struct Random {
  uint64_t state;
  uint64_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t size() {
    switch (below(8)) {
      case 0:
      case 1: return 0;
      case 2: return 1;
      case 3:
      case 4: return huge[below(static_cast<int64_t>(std::size(huge)))];
      case 5: return 1 + below(300);
      default: return 1 + below(9);
    }
  }
};

// Exactly as many bytes as asked for, so that the next one is forbidden; null for none.
struct Memory {
  void* data = nullptr;
  explicit Memory(int64_t bytes) {
    if (bytes > 0 && posix_memalign(&data, 64, static_cast<size_t>(bytes)) != 0) std::abort();
  }
  Memory(const Memory&) = delete;
  Memory(Memory&& other) noexcept : data(other.data) { other.data = nullptr; }
  ~Memory() { std::free(data); }
};

// Small numbers; of the integers a few that are no index of anything.
void fill(void* data, int64_t bytes, int32_t dtype, Random& random) {
  const int64_t size = element_size(dtype);
  for (int64_t i = 0; i * size < bytes; ++i) {
    const float number = static_cast<float>(random.below(1000)) / 500.0f - 1.0f;
    const double wide = number;
    const int64_t odd = random.below(2) == 0 ? INT64_MIN : INT64_MAX;
    const int64_t whole = random.below(500) == 0 ? odd : random.below(3) - (random.below(4) == 0);
    const uint16_t half = static_cast<uint16_t>(0x3000 + random.below(1024));
    const bool flag = random.below(2) == 0;
    const void* from = dtype == 1                   ? static_cast<const void*>(&number)
                       : dtype == 11                ? static_cast<const void*>(&wide)
                       : dtype == 10 || dtype == 16 ? static_cast<const void*>(&half)
                       : dtype == 9                 ? static_cast<const void*>(&flag)
                                                    : static_cast<const void*>(&whole);
    std::memcpy(static_cast<char*>(data) + i * size, from, static_cast<size_t>(size));
  }
}

MaybeInt bytes_of(const int64_t* dims, int32_t rank, int32_t dtype) {
  MaybeInt bytes = element_size(dtype);
  for (int32_t d = 0; d < rank; ++d) bytes = bytes * dims[d];
  return bytes;
}

enum Outcome { computed, failed, idle, refused, outcomes };

struct Run {
  const GraphSpec& graph;
  Random& random;
  std::vector<std::vector<int64_t>> dims;
  std::vector<InputShape> shapes;
  std::vector<int64_t> symbols;
  int64_t taken = 0;

  // Memory for a tensor, if there is so much.
  bool take(MaybeInt bytes, std::vector<Memory>& memory) {
    if (!bytes.known || bytes.value > most_memory - taken) return false;
    taken += bytes.value;
    memory.emplace_back(bytes.value);
    return true;
  }

  // Shapes that fit the graph for some symbols, or nearly fit.
  void choose_shapes() {
    std::vector<int64_t> chosen;
    for (int32_t s = 0; s < graph.symbol_count; ++s) chosen.push_back(random.size());
    size_t length = static_cast<size_t>(std::snprintf(current, sizeof current, "%s on", graph.op));
    for (int32_t i = 0; i < graph.input_count; ++i) {
      const TensorSpec& input = graph.inputs[i];
      dims.emplace_back();
      for (int32_t d = 0; d < input.rank; ++d) {
        const int64_t size = maybe_dim_value(graph, input.dims[d], chosen.data()).value;
        dims.back().push_back(random.below(60) == 0 ? random.size() : size < 0 ? 0 : size);
        length += static_cast<size_t>(std::snprintf(current + length, sizeof current - length, "%s%" PRId64,
                                                    d == 0 ? " " : "x", dims.back().back()));
      }
      shapes.push_back({dims.back().data(), input.rank});
    }
    std::snprintf(current + length, sizeof current - length, "\n");
  }

  Outcome go() {
    choose_shapes();
    std::vector<Memory> inputs, weights, outputs, scratch;
    for (int32_t i = 0; i < graph.input_count; ++i) {
      const MaybeInt bytes = bytes_of(shapes[i].dims, shapes[i].rank, graph.inputs[i].dtype);
      if (!take(bytes, inputs)) return refused;
      fill(inputs.back().data, bytes.value, graph.inputs[i].dtype, random);
    }
    symbols.resize(static_cast<size_t>(graph.symbol_count));
    char sentence[1024];
    if (!bind_symbols(graph, shapes.data(), symbols.data(), sentence, sizeof sentence)) return refused;
    const bool work = has_work(graph, symbols.data());
    if (work && !check_sizes(graph, symbols.data(), sentence, sizeof sentence)) return refused;
    if (!work) return idle;
    for (int32_t o = 0; o < graph.output_count; ++o) {
      std::vector<int64_t> sizes;
      const TensorSpec& output = graph.outputs[o];
      for (int32_t d = 0; d < output.rank; ++d) sizes.push_back(dim_value(graph, output.dims[d], symbols.data()));
      if (!take(bytes_of(sizes.data(), output.rank, output.dtype), outputs)) return refused;
    }
    const int64_t bytes = graph.execution->scratch_bytes(symbols.data());
    if (bytes < 0 || bytes > most_bytes || !take(bytes, scratch)) return refused;
    for (int32_t w = 0; w < graph.weight_count; ++w) {
      weights.emplace_back(graph.weights[w].bytes);
      fill(weights.back().data, graph.weights[w].bytes, graph.weights[w].dtype, random);
    }
    return run(inputs, weights, outputs, scratch) == nullptr ? computed : failed;
  }

  const char* run(const std::vector<Memory>& inputs, const std::vector<Memory>& weights,
                  const std::vector<Memory>& outputs, const std::vector<Memory>& scratch) const {
    std::vector<const void*> in, constants;
    std::vector<void*> out;
    for (const Memory& memory : inputs) in.push_back(memory.data);
    for (const Memory& memory : weights) constants.push_back(memory.data);
    for (const Memory& memory : outputs) out.push_back(memory.data);
    return graph.execution->run(symbols.data(), in.data(), constants.data(), out.data(),
                                static_cast<char*>(scratch.front().data), {nullptr, nullptr});
  }
};

}  // namespace

int main(int, char** argv) {
  const int64_t runs = std::atoll(argv[1]);
  Random random{static_cast<uint64_t>(std::atoll(argv[2]))};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  __sanitizer_set_death_callback(say_current);
  signal(SIGALRM, [](int) {
    say_current();
    _exit(14);
  });
  for (int32_t g = 0; g < graph_spec_count; ++g) {
    int64_t counts[outcomes] = {};
    for (int64_t i = 0; i < runs; ++i) {
      Run one{*graph_specs[g], random, {}, {}, {}};
      alarm(most_seconds);
      ++counts[one.go()];
    }
    std::printf("%s: computed %d failed %d idle %d refused %d\n", graph_specs[g]->op,
                static_cast<int>(counts[computed]), static_cast<int>(counts[failed]), static_cast<int>(counts[idle]),
                static_cast<int>(counts[refused]));
  }
  return 0;
}
