// A Python module that runs the compiled graphs on numpy arrays, without ONNX Runtime.
//
//   graphs() -> [{"op", "inputs", "weights", "outputs", "symbols", "shared"}, ...]
//   Graph(index, threads=1): set_weights(arrays), run(arrays, out=None) -> arrays, trace(arrays) -> (arrays, scratch, symbols)
//
// `out` has an array or None for each output. An array is written and returned. `shared` maps inputs to outputs that may be the
// same array: caches, of which only the new rows are written then.
//
// bfloat16 and float8 arrays come and go as their raw bits, in unsigned integers.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "element_size.h"
#include "execution.h"
#include "sizes.h"
#include "thread_pool.h"

namespace py = pybind11;

namespace ortisan {
namespace {

constexpr size_t alignment = 64;

// The numpy type that holds elements of an ONNX type.
py::dtype numpy_type(int32_t dtype) {
  switch (dtype) {
    case 1: return py::dtype("float32");
    case 2: return py::dtype("uint8");
    case 3: return py::dtype("int8");
    case 4: return py::dtype("uint16");
    case 5: return py::dtype("int16");
    case 6: return py::dtype("int32");
    case 7: return py::dtype("int64");
    case 9: return py::dtype("bool");
    case 10: return py::dtype("float16");
    case 11: return py::dtype("float64");
    case 12: return py::dtype("uint32");
    case 13: return py::dtype("uint64");
    case 16: return py::dtype("uint16");
    default: return py::dtype("uint8");
  }
}

// Whether an array's elements are those of an ONNX type: the numpy type, or any type's raw bits in the same width for the
// types that numpy lacks (and float16, which some keep as bits).
bool fits(const py::dtype& actual, int32_t dtype) {
  const py::dtype expected = numpy_type(dtype);
  if (actual.itemsize() != expected.itemsize() || actual.byteorder() == '>') return false;
  if (actual.kind() == expected.kind()) return true;
  return (dtype == 10 && actual.kind() == 'u') || (dtype >= 16 && actual.kind() == 'V');
}

// The array as C-ordered, aligned memory of the right type: itself, or a copy.
py::array usable(const GraphSpec& graph, const py::handle& object, const char* role, const char* name, int32_t dtype) {
  const py::module_ numpy = py::module_::import("numpy");
  const py::array array = numpy.attr("require")(object, py::none(), py::make_tuple("C", "A"));
  if (!fits(array.dtype(), dtype))
    throw py::value_error(std::string(graph.op) + ": " + role + " '" + name + "' has element type " +
                          py::str(array.dtype()).cast<std::string>() + ", expected " +
                          py::str(numpy_type(dtype)).cast<std::string>());
  return array;
}

// The caller's array for an output, which has to be as the output is: nothing is converted on the way out.
py::array output_array(const GraphSpec& graph, const py::object& object, const TensorSpec& output,
                       const std::vector<py::ssize_t>& shape) {
  const std::string what = std::string(graph.op) + ": out for '" + output.name + "' ";
  if (!py::isinstance<py::array>(object)) throw py::value_error(what + "is not an array");
  const py::array array = py::reinterpret_borrow<py::array>(object);
  if (!fits(array.dtype(), output.dtype))
    throw py::value_error(what + "has element type " + py::str(array.dtype()).cast<std::string>() + ", expected " +
                          py::str(numpy_type(output.dtype)).cast<std::string>());
  if (std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()) != shape)
    throw py::value_error(what + "has shape " + py::str(array.attr("shape")).cast<std::string>() + ", expected " +
                          py::str(py::tuple(py::cast(shape))).cast<std::string>());
  const py::object flags = array.attr("flags");
  if (!flags["C_CONTIGUOUS"].cast<bool>() || !flags["ALIGNED"].cast<bool>() || !flags["WRITEABLE"].cast<bool>())
    throw py::value_error(what + "must be C-contiguous, aligned and writeable");
  return array;
}

// (input, output) of what may be the same memory.
std::vector<std::pair<int, int>> shared_pairs(const GraphSpec& graph) {
  int *inputs = nullptr, *outputs = nullptr;
  const size_t count = graph.shared == nullptr ? 0 : graph.shared(&inputs, &outputs);
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < count; ++i) pairs.emplace_back(inputs[i], outputs[i]);
  return pairs;
}

void check_count(const GraphSpec& graph, size_t actual, int32_t expected, const char* what) {
  if (actual != static_cast<size_t>(expected))
    throw py::value_error(std::string(graph.op) + ": got " + std::to_string(actual) + " " + what + ", expected " +
                          std::to_string(expected));
}

// A block of aligned memory that is kept from call to call while it is large enough.
struct Block {
  char* data = nullptr;
  size_t size = 0;

  explicit Block(size_t bytes) : size((bytes + alignment - 1) / alignment * alignment) {
    data = size == 0 ? nullptr : static_cast<char*>(std::aligned_alloc(alignment, size));
    if (size != 0 && data == nullptr) throw std::bad_alloc();
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(data); }
};

struct Weights {
  std::vector<py::array> arrays;
  std::vector<const void*> data;
};

class Graph {
 public:
  Graph(int64_t index, int threads) : spec_(find(index)), pool_(checked(threads)) {
    if (spec_.weight_count == 0) weights_ = std::make_shared<Weights>();
  }

  void set_weights(const std::vector<py::object>& objects) {
    check_count(spec_, objects.size(), spec_.weight_count, "weights");
    auto weights = std::make_shared<Weights>();
    for (int32_t w = 0; w < spec_.weight_count; ++w) {
      const WeightSpec& weight = spec_.weights[w];
      weights->arrays.push_back(usable(spec_, objects[static_cast<size_t>(w)], "weight", weight.name, weight.dtype));
      const py::array& array = weights->arrays.back();
      if (array.nbytes() != weight.bytes)
        throw py::value_error(std::string(spec_.op) + ": weight '" + weight.name + "' has " +
                              std::to_string(array.nbytes()) + " bytes, expected " + std::to_string(weight.bytes));
      weights->data.push_back(array.data());
    }
    weights_ = weights;
  }

  std::vector<py::array> run(const std::vector<py::object>& objects,
                             const std::optional<std::vector<py::object>>& out) {
    if (out) check_count(spec_, out->size(), spec_.output_count, "arrays in out");
    Call call =
        prepare(objects, out ? *out : std::vector<py::object>(static_cast<size_t>(spec_.output_count), py::none()));
    if (!call.work) return call.outputs;
    std::unique_ptr<Block> block = take_block(call.scratch_bytes);
    compute(call, block->data);
    keep_block(std::move(block));
    return call.outputs;
  }

  py::tuple trace(const std::vector<py::object>& objects) {
    Call call = prepare(objects, std::vector<py::object>(static_cast<size_t>(spec_.output_count), py::none()), true);
    auto block = std::make_unique<Block>(static_cast<size_t>(call.scratch_bytes));
    if (block->size != 0) std::memset(block->data, 0, block->size);
    compute(call, block->data);
    char* data = block->data;
    const py::capsule owner(block.release(), [](void* b) { delete static_cast<Block*>(b); });
    return py::make_tuple(call.outputs,
                          py::array_t<uint8_t>({call.scratch_bytes}, reinterpret_cast<uint8_t*>(data), owner),
                          call.symbols);
  }

  std::string op() const { return spec_.op; }
  int threads() const { return pool_.threads(); }

 private:
  struct Call {
    std::vector<py::array> inputs, outputs;
    std::vector<const void*> input_data;
    std::vector<void*> output_data;
    std::vector<int64_t> symbols;
    std::shared_ptr<Weights> weights;
    int64_t scratch_bytes = 0;
    bool work = false;
  };

  static const GraphSpec& find(int64_t index) {
    if (index < 0 || index >= graph_spec_count)
      throw py::index_error("there is no graph " + std::to_string(index) + "; the library has " +
                            std::to_string(graph_spec_count));
    return *graph_specs[index];
  }

  static int checked(int threads) {
    if (threads < 1 || threads > 1024) throw py::value_error("threads must be 1..1024, not " + std::to_string(threads));
    return threads;
  }

  // With `trace` intermediate values count as work, too.
  Call prepare(const std::vector<py::object>& objects, const std::vector<py::object>& out, bool trace = false) const {
    if (weights_ == nullptr) throw py::value_error(std::string(spec_.op) + ": set_weights has not been called");
    check_count(spec_, objects.size(), spec_.input_count, "inputs");
    Call call;
    call.weights = weights_;
    std::vector<std::vector<int64_t>> dims;
    std::vector<InputShape> shapes;
    for (int32_t i = 0; i < spec_.input_count; ++i) {
      const TensorSpec& input = spec_.inputs[i];
      call.inputs.push_back(usable(spec_, objects[static_cast<size_t>(i)], "input", input.name, input.dtype));
      const py::array& array = call.inputs.back();
      dims.emplace_back(array.shape(), array.shape() + array.ndim());
      shapes.push_back({dims.back().data(), static_cast<int32_t>(array.ndim())});
      call.input_data.push_back(array.data());
    }
    call.symbols.resize(static_cast<size_t>(spec_.symbol_count));
    char sentence[1024];
    if (!bind_symbols(spec_, shapes.data(), call.symbols.data(), sentence, sizeof sentence))
      throw py::value_error(sentence);
    call.work = trace || has_work(spec_, call.symbols.data());
    if (call.work && !check_sizes(spec_, call.symbols.data(), sentence, sizeof sentence))
      throw py::value_error(sentence);
    for (int32_t o = 0; o < spec_.output_count; ++o) {
      const TensorSpec& output = spec_.outputs[o];
      std::vector<py::ssize_t> shape;
      for (int32_t d = 0; d < output.rank; ++d) shape.push_back(dim_value(spec_, output.dims[d], call.symbols.data()));
      const py::object& given = out[static_cast<size_t>(o)];
      call.outputs.push_back(given.is_none() ? py::array(numpy_type(output.dtype), shape)
                                             : output_array(spec_, given, output, shape));
      call.output_data.push_back(call.outputs.back().mutable_data());
    }
    check_overlaps(call, out);
    if (!call.work) return call;
    call.scratch_bytes = spec_.execution->scratch_bytes(call.symbols.data());
    if (call.scratch_bytes < 0 || call.scratch_bytes > most_bytes)
      throw py::value_error(std::string(spec_.op) +
                            ": the inputs are too large: a call would take over 2^47 bytes of working memory");
    return call;
  }

  // What the caller gave to be written is nobody else's memory, but for caches.
  void check_overlaps(const Call& call, const std::vector<py::object>& out) const {
    const auto pairs = shared_pairs(spec_);
    for (size_t o = 0; o < out.size(); ++o) {
      if (out[o].is_none()) continue;
      const std::string what = std::string(spec_.op) + ": out for '" + spec_.outputs[o].name + "' overlaps ";
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        if (!overlap(call.inputs[i], call.outputs[o])) continue;
        const std::pair<int, int> pair(static_cast<int>(i), static_cast<int>(o));
        const bool same = call.input_data[i] == call.output_data[o];
        if (!same || std::find(pairs.begin(), pairs.end(), pair) == pairs.end())
          throw py::value_error(what + "input '" + spec_.inputs[i].name + "' in memory");
      }
      for (size_t other = 0; other < o; ++other)
        if (overlap(call.outputs[other], call.outputs[o]))
          throw py::value_error(what + "that for '" + spec_.outputs[other].name + "' in memory");
    }
  }

  static bool overlap(const py::array& a, const py::array& b) {
    const auto first = reinterpret_cast<uintptr_t>(a.data()), second = reinterpret_cast<uintptr_t>(b.data());
    return first < second + static_cast<size_t>(b.nbytes()) && second < first + static_cast<size_t>(a.nbytes());
  }

  void compute(const Call& call, char* scratch) {
    const char* failure = nullptr;
    {
      const py::gil_scoped_release released;
      failure = spec_.execution->run(call.symbols.data(), call.input_data.data(), call.weights->data.data(),
                                     call.output_data.data(), scratch, pool_.handle());
    }
    if (failure != nullptr) throw std::runtime_error(std::string(spec_.op) + ": " + failure);
  }

  std::unique_ptr<Block> take_block(int64_t bytes) {
    std::unique_ptr<Block> block = std::move(spare_);
    if (block == nullptr || block->size < static_cast<size_t>(bytes))
      block = std::make_unique<Block>(static_cast<size_t>(bytes));
    return block;
  }
  void keep_block(std::unique_ptr<Block> block) { spare_ = std::move(block); }

  const GraphSpec& spec_;
  ThreadPool pool_;
  std::shared_ptr<Weights> weights_;
  std::unique_ptr<Block> spare_;  // touched under the GIL only
};

py::object describe_dim(const GraphSpec& graph, const DimSpec& dim) {
  if (dim.kind == DimSpec::fixed) return py::int_(dim.value);
  if (dim.kind == DimSpec::symbol) return py::str(graph.symbols[dim.value].name);
  return py::none();
}

py::list describe_tensors(const GraphSpec& graph, const TensorSpec* tensors, int32_t count) {
  py::list described;
  for (int32_t t = 0; t < count; ++t) {
    py::list shape;
    for (int32_t d = 0; d < tensors[t].rank; ++d) shape.append(describe_dim(graph, tensors[t].dims[d]));
    described.append(
        py::dict(py::arg("name") = tensors[t].name, py::arg("dtype") = tensors[t].dtype, py::arg("shape") = shape));
  }
  return described;
}

py::dict describe(const GraphSpec& graph) {
  py::list weights, symbols;
  for (int32_t w = 0; w < graph.weight_count; ++w)
    weights.append(py::dict(py::arg("name") = graph.weights[w].name, py::arg("dtype") = graph.weights[w].dtype,
                            py::arg("bytes") = graph.weights[w].bytes));
  for (int32_t s = 0; s < graph.symbol_count; ++s)
    symbols.append(py::dict(py::arg("name") = graph.symbols[s].name, py::arg("low") = graph.symbols[s].low,
                            py::arg("high") = graph.symbols[s].high));
  py::dict shared;
  for (const auto& [input, output] : shared_pairs(graph)) shared[py::int_(input)] = output;
  return py::dict(
      py::arg("op") = graph.op, py::arg("inputs") = describe_tensors(graph, graph.inputs, graph.input_count),
      py::arg("weights") = weights, py::arg("outputs") = describe_tensors(graph, graph.outputs, graph.output_count),
      py::arg("symbols") = symbols, py::arg("shared") = shared);
}

}  // namespace
}  // namespace ortisan

PYBIND11_MODULE(ORTISAN_MODULE, module) {
  using ortisan::Graph;
  module.doc() = "The graphs of one compiled library, on numpy arrays.";
  module.def(
      "graphs",
      [] {
        py::list all;
        for (int32_t g = 0; g < ortisan::graph_spec_count; ++g) all.append(ortisan::describe(*ortisan::graph_specs[g]));
        return all;
      },
      "What each graph takes and gives; an unknown dim is its symbol's name, a computed one None.");
  py::class_<Graph>(module, "Graph")
      .def(py::init<int64_t, int>(), py::arg("index"), py::arg("threads") = 1)
      .def_property_readonly("op", &Graph::op)
      .def_property_readonly("threads", &Graph::threads)
      .def("set_weights", &Graph::set_weights, py::arg("weights"),
           "Keeps the arrays; they are copied only where numpy must.")
      .def("run", &Graph::run, py::arg("inputs"), py::arg("out") = py::none(),
           "The outputs, in the arrays of `out` where it has one. Lets other Python threads run meanwhile.")
      .def("trace", &Graph::trace, py::arg("inputs"), "(outputs, scratch block as uint8, the symbols' values)");
}
