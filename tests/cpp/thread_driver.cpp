// Runs every graph of a library on one shared thread pool from 8 threads, 200 times each, and compares all outputs bit by bit
// with those of one thread alone. Needs no Python and no ONNX Runtime, so that ThreadSanitizer sees every thread.
//
//   thread_driver [symbol=size ...]     a symbol that is not named gets the smallest size it allows, but at least 2
//
// Integer inputs are 0 or 1: valid as indices, masks and lengths.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bind.h"
#include "element_size.h"
#include "execution.h"
#include "thread_pool.h"

using namespace ortisan;

namespace {

constexpr int callers = 8, runs = 200;

using Bytes = std::vector<char>;
struct AlignedBytes {
  Bytes bytes;
  explicit AlignedBytes(size_t size) : bytes(size + 63) {}
  char* data() { return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) & ~uintptr_t{63}); }
};

template <class T, class F>
void fill(Bytes& bytes, const F& value) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    const T v = value();
    std::memcpy(bytes.data() + i, &v, sizeof v);
  }
}

// Positive floats below 1, or zeros and ones.
void fill_random(Bytes& bytes, int32_t dtype, uint32_t& seed) {
  const auto next = [&seed] { return seed = seed * 1664525u + 1013904223u; };
  if (dtype == 1) return fill<float>(bytes, [&] { return static_cast<float>(next() >> 8) / 16777216.0f; });
  if (dtype == 11) return fill<double>(bytes, [&] { return next() / 4294967296.0; });
  if (dtype == 10) return fill<uint16_t>(bytes, [&] { return static_cast<uint16_t>(0x3000 + (next() >> 24)); });
  if (dtype == 16) return fill<uint16_t>(bytes, [&] { return static_cast<uint16_t>(0x3E00 + (next() >> 25)); });
  switch (element_size(dtype)) {
    case 2: return fill<uint16_t>(bytes, [&] { return static_cast<uint16_t>(next() >> 31); });
    case 4: return fill<uint32_t>(bytes, [&] { return next() >> 31; });
    case 8: return fill<uint64_t>(bytes, [&] { return static_cast<uint64_t>(next() >> 31); });
    default: return fill<uint8_t>(bytes, [&] { return static_cast<uint8_t>(next() >> 31); });
  }
}

size_t bytes_of(const GraphSpec& graph, const TensorSpec& tensor, const int64_t* symbols) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.rank; ++d) count *= dim_value(graph, tensor.dims[d], symbols);
  return static_cast<size_t>(count * element_size(tensor.dtype));
}

std::vector<int64_t> choose_symbols(const GraphSpec& graph, int argc, char** argv) {
  std::vector<int64_t> symbols;
  for (int32_t s = 0; s < graph.symbol_count; ++s) {
    const SymbolSpec& symbol = graph.symbols[s];
    symbols.push_back(min_dim(max_dim(symbol.low, 2), symbol.high));
    const std::string prefix = std::string(symbol.name) + "=";
    for (int a = 1; a < argc; ++a)
      if (std::strncmp(argv[a], prefix.c_str(), prefix.size()) == 0)
        symbols.back() = std::atoll(argv[a] + prefix.size());
  }
  return symbols;
}

struct Case {
  const GraphSpec& graph;
  std::vector<int64_t> symbols;
  std::vector<Bytes> inputs, weights;

  // False when the outputs could not be computed.
  bool run(Parallel parallel, std::vector<Bytes>& outputs) const {
    std::vector<const void*> in, constants;
    std::vector<void*> out;
    for (const Bytes& b : inputs) in.push_back(b.data());
    for (const Bytes& b : weights) constants.push_back(b.data());
    for (int32_t o = 0; o < graph.output_count; ++o)
      outputs.emplace_back(bytes_of(graph, graph.outputs[o], symbols.data()));
    for (Bytes& b : outputs) out.push_back(b.data());
    AlignedBytes scratch(static_cast<size_t>(graph.execution->scratch_bytes(symbols.data())));
    const char* failure =
        graph.execution->run(symbols.data(), in.data(), constants.data(), out.data(), scratch.data(), parallel);
    if (failure != nullptr) std::fprintf(stderr, "%s: %s\n", graph.op, failure);
    return failure == nullptr;
  }
};

Case make_case(const GraphSpec& graph, int argc, char** argv) {
  Case made{graph, choose_symbols(graph, argc, argv), {}, {}};
  uint32_t seed = 1;
  for (int32_t i = 0; i < graph.input_count; ++i) {
    made.inputs.emplace_back(bytes_of(graph, graph.inputs[i], made.symbols.data()));
    fill_random(made.inputs.back(), graph.inputs[i].dtype, seed);
  }
  for (int32_t w = 0; w < graph.weight_count; ++w) {
    made.weights.emplace_back(static_cast<size_t>(graph.weights[w].bytes));
    fill_random(made.weights.back(), graph.weights[w].dtype, seed);
  }
  return made;
}

bool check(const Case& test) {
  std::vector<Bytes> expected;
  if (!test.run(Parallel{nullptr, nullptr}, expected)) return false;
  ThreadPool pool(4);
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < callers; ++t)
    threads.emplace_back([&] {
      for (int r = 0; r < runs; ++r) {
        std::vector<Bytes> outputs;
        if (!test.run(pool.handle(), outputs) || outputs != expected) ++different;
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::printf("%s: %d of %d runs differ\n", test.graph.op, different.load(), callers * runs);
  return different == 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool good = true;
  for (int32_t g = 0; g < graph_spec_count; ++g) good = check(make_case(*graph_specs[g], argc, argv)) && good;
  return good ? 0 : 1;
}
