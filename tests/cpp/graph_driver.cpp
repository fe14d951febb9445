// Runs the first graph of a library: tensors come in one block, `at` says where in it each begins.
#include <cstdlib>

#include "bind.h"
#include "driver.h"
#include "execution.h"

using namespace ortisan;

namespace {

template <class P, class Byte>
std::vector<P> pointers(Byte* block, const int64_t* at, int32_t count) {
  std::vector<P> list;
  for (int32_t i = 0; i < count; ++i) list.push_back(block + at[i]);
  return list;
}

}  // namespace

// Null, or what went wrong. `dims` are those of all inputs, one after the other.
EXPORT const char* run_graph(const int64_t* dims, const char* inputs, const int64_t* inputs_at, const char* weights,
                             const int64_t* weights_at, char* outputs, const int64_t* outputs_at) {
  static char sentence[1024];
  const GraphSpec& graph = *graph_specs[0];
  std::vector<InputShape> shapes;
  for (int32_t i = 0; i < graph.input_count; ++i) {
    shapes.push_back({dims, graph.inputs[i].rank});
    dims += graph.inputs[i].rank;
  }
  std::vector<int64_t> symbols(static_cast<size_t>(graph.symbol_count));
  if (!bind_symbols(graph, shapes.data(), symbols.data(), sentence, sizeof sentence)) return sentence;
  const auto in = pointers<const void*>(inputs, inputs_at, graph.input_count);
  const auto constants = pointers<const void*>(weights, weights_at, graph.weight_count);
  const auto out = pointers<void*>(outputs, outputs_at, graph.output_count);
  const size_t bytes = static_cast<size_t>(graph.execution->scratch_bytes(symbols.data())) / 64 * 64 + 64;
  char* scratch = static_cast<char*>(std::aligned_alloc(64, bytes));
  const driver::TestContext context;
  const char* failure =
      graph.execution->run(symbols.data(), in.data(), constants.data(), out.data(), scratch, context.parallel);
  std::free(scratch);
  return failure;
}
