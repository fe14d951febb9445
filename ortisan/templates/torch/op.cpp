// A compiled graph as the CPU kernel of an op of torch, without Python and without ONNX Runtime.
//
//   ortisan_register(request, sentence, size) -> handle   registers the kernel; null with a sentence when it can't
//   ortisan_unregister(handle)                            takes it back; nobody may be calling the op
//
// The op's schema is registered by whoever calls this: tensors in, tensors out. The kernel is boxed, so this file serves every
// signature; what an argument has to be is read off the graph's tables.

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cpu_features.h"
#include "execution.h"
#include "sizes.h"
#include "thread_pool.h"
#include "weight_copy.h"

extern "C" {

// How an op calls a graph. Positions are those of the op's arguments and results. Everything but the weights is copied.
struct OrtisanRequest {
  const char* name;  // of the op, without its namespace
  const char* graph;  // the custom op's type name
  const int32_t* arguments;  // of each input of the graph: which argument of the op it is
  int32_t argument_count;  // of the op
  const int32_t* results;  // of each output of the graph: which result of the op it is
  const void* const* weights;  // live as long as the op
  const int64_t* weight_bytes;
  int32_t input_count, output_count, weight_count;
  int32_t threads;
  const char* weights_setting;
};

}  // extern "C"

namespace ortisan {
namespace {

constexpr size_t alignment = 64;

// The dtype that holds elements of an ONNX type; Undefined when torch has none.
at::ScalarType torch_type(int32_t dtype) {
  switch (dtype) {
    case 1: return at::kFloat;
    case 2: return at::kByte;
    case 3: return at::kChar;
    case 4: return at::kUInt16;
    case 5: return at::kShort;
    case 6: return at::kInt;
    case 7: return at::kLong;
    case 9: return at::kBool;
    case 10: return at::kHalf;
    case 11: return at::kDouble;
    case 12: return at::kUInt32;
    case 13: return at::kUInt64;
    case 16: return at::kBFloat16;
    default: return at::ScalarType::Undefined;
  }
}

// A block of aligned memory.
struct Block {
  char* data = nullptr;
  size_t size = 0;

  explicit Block(size_t bytes) : size((bytes + alignment - 1) / alignment * alignment) {
    data = size == 0 ? nullptr : static_cast<char*>(std::aligned_alloc(alignment, size));
    TORCH_CHECK(size == 0 || data != nullptr, "there is no memory for ", size, " bytes of scratch space");
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(data); }
};

class Op : public c10::OperatorKernel {
 public:
  Op(const OrtisanRequest& request, const GraphSpec& graph, Weights setting)
      : name_(std::string("ortisan::") + request.name), spec_(graph),
        arguments_(request.arguments, request.arguments + request.input_count),
        argument_count_(static_cast<size_t>(request.argument_count)),
        results_(request.results, request.results + request.output_count),
        weights_(request.weights, request.weights + request.weight_count), pool_(request.threads) {
    spec_.op = name_.c_str();
    if (wants_copy(graph, setting)) copy_ = use_copy(graph, weights_.data());
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  ~Op() override { leave_copy(copy_); }

  // Any number of threads may be here at once.
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const auto arguments = torch::jit::last(*stack, argument_count_);
    std::vector<at::Tensor> inputs;
    inputs.reserve(arguments_.size());
    for (size_t i = 0; i < arguments_.size(); ++i)
      inputs.push_back(usable(spec_.inputs[i], arguments[static_cast<size_t>(arguments_[i])].toTensor()));
    std::vector<at::Tensor> outputs = compute(inputs);
    torch::jit::drop(*stack, argument_count_);
    for (at::Tensor& output : outputs) stack->emplace_back(std::move(output));
  }

 private:
  at::Tensor usable(const TensorSpec& input, const at::Tensor& tensor) const {
    TORCH_CHECK_VALUE(tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided, name_,
                      ": input '", Name(input.name).text, "' is no dense tensor on the CPU");
    const at::ScalarType expected = torch_type(input.dtype);
    TORCH_CHECK_TYPE(tensor.scalar_type() == expected, name_, ": input '", Name(input.name).text, "' has dtype ",
                     tensor.scalar_type(), ", expected ", expected);
    if (tensor.is_contiguous() && !tensor.is_neg()) return tensor;
    return tensor.contiguous().resolve_neg();
  }

  std::vector<at::Tensor> compute(const std::vector<at::Tensor>& inputs) {
    std::vector<InputShape> shapes;
    std::vector<const void*> input_data;
    shapes.reserve(inputs.size());
    input_data.reserve(inputs.size());
    for (const at::Tensor& input : inputs) {
      shapes.push_back({input.sizes().data(), static_cast<int32_t>(input.dim())});
      input_data.push_back(input.const_data_ptr());
    }
    std::vector<int64_t> symbols(static_cast<size_t>(spec_.symbol_count));
    char sentence[1024];
    TORCH_CHECK_VALUE(bind_symbols(spec_, shapes.data(), symbols.data(), sentence, sizeof sentence), sentence);
    const bool work = has_work(spec_, symbols.data());
    TORCH_CHECK_VALUE(!work || check_sizes(spec_, symbols.data(), sentence, sizeof sentence), sentence);
    std::vector<at::Tensor> outputs(results_.size());
    std::vector<void*> output_data;
    output_data.reserve(results_.size());
    for (int32_t o = 0; o < spec_.output_count; ++o) {
      const TensorSpec& output = spec_.outputs[o];
      c10::SmallVector<int64_t, 8> sizes;
      for (int32_t d = 0; d < output.rank; ++d) sizes.push_back(dim_value(spec_, output.dims[d], symbols.data()));
      at::Tensor& tensor = outputs[static_cast<size_t>(results_[static_cast<size_t>(o)])];
      tensor = at::empty(sizes, at::TensorOptions().dtype(torch_type(output.dtype)));
      output_data.push_back(tensor.mutable_data_ptr());
    }
    if (!work) return outputs;
    const int64_t bytes = spec_.execution->scratch_bytes(symbols.data());
    TORCH_CHECK_VALUE(bytes >= 0 && bytes <= most_bytes, name_,
                      ": the inputs are too large: a call would take over 2^47 bytes of working memory");
    std::unique_ptr<Block> scratch = take_block(static_cast<size_t>(bytes));
    const char* failure = spec_.execution->run(symbols.data(), input_data.data(), weights_.data(), output_data.data(),
                                               scratch->data, pool_.handle());
    keep_block(std::move(scratch));
    TORCH_CHECK(failure == nullptr, name_, ": ", failure);
    return outputs;
  }

  std::unique_ptr<Block> take_block(size_t bytes) {
    std::unique_ptr<Block> block;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      block = std::move(spare_);
    }
    return block != nullptr && block->size >= bytes ? std::move(block) : std::make_unique<Block>(bytes);
  }
  void keep_block(std::unique_ptr<Block> block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (spare_ == nullptr || spare_->size < block->size) spare_.swap(block);
  }

  const std::string name_;
  GraphSpec spec_;
  const std::vector<int32_t> arguments_;
  const size_t argument_count_;
  const std::vector<int32_t> results_;
  std::vector<const void*> weights_;
  WeightCopy* copy_ = nullptr;
  ThreadPool pool_;
  std::mutex mutex_;
  std::unique_ptr<Block> spare_;  // the largest block that nobody uses now
};

const GraphSpec* find_graph(const char* op) {
  for (int32_t g = 0; g < graph_spec_count; ++g)
    if (std::strcmp(graph_specs[g]->op, op) == 0) return graph_specs[g];
  return nullptr;
}

// Why a request does not suit its graph; empty when it does.
std::string objection(const OrtisanRequest& request, const GraphSpec* graph, Weights* setting) {
  if (graph == nullptr) return std::string("the library has no graph '") + request.graph + "'";
  if (request.input_count != graph->input_count || request.output_count != graph->output_count ||
      request.weight_count != graph->weight_count)
    return std::string("the model and the library disagree about the inputs of '") + request.graph + "'";
  for (int32_t w = 0; w < graph->weight_count; ++w)
    if (request.weight_bytes[w] != graph->weights[w].bytes)
      return std::string("weight '") + graph->weights[w].name + "' has " + std::to_string(request.weight_bytes[w]) +
             " bytes, expected " + std::to_string(graph->weights[w].bytes);
  for (int32_t i = 0; i < graph->input_count; ++i)
    if (request.arguments[i] < 0 || request.arguments[i] >= request.argument_count ||
        torch_type(graph->inputs[i].dtype) == at::ScalarType::Undefined)
      return std::string("torch has no tensor for input '") + graph->inputs[i].name + "'";
  for (int32_t o = 0; o < graph->output_count; ++o)
    if (request.results[o] < 0 || request.results[o] >= graph->output_count ||
        torch_type(graph->outputs[o].dtype) == at::ScalarType::Undefined)
      return std::string("torch has no tensor for output '") + graph->outputs[o].name + "'";
  if (!parse_weights(request.weights_setting, setting)) return "the setting of weights is unknown";
  return "";
}

// An op's kernel, and what refuses a gradient.
struct Registered {
  torch::Library kernel{torch::Library::IMPL, "ortisan", c10::DispatchKey::CPU, "op.cpp", 0};
  torch::Library gradient{torch::Library::IMPL, "ortisan", c10::DispatchKey::Autograd, "op.cpp", 0};
};

}  // namespace
}  // namespace ortisan

// Up to the check of the machine, nothing of the kernels' instruction set runs.
extern "C" __attribute__((visibility("default"))) void* ortisan_register(const OrtisanRequest* request, char* sentence,
                                                                         size_t size) {
  using namespace ortisan;
  char missing[32];
  if (find_missing_feature(ORTISAN_CPU_FEATURES, missing, sizeof missing)) {
    std::snprintf(sentence, size, "the artifact was built for %s CPUs, but this CPU has no %s", ORTISAN_ISA, missing);
    return nullptr;
  }
  try {
    const GraphSpec* graph = find_graph(request->graph);
    Weights setting = Weights::automatic;
    const std::string why = objection(*request, graph, &setting);
    TORCH_CHECK(why.empty(), why);
    auto registered = std::make_unique<Registered>();
    registered->kernel.impl(request->name,
                            torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Op>(*request, *graph, setting)));
    registered->gradient.impl(request->name, torch::autograd::autogradNotImplementedFallback());
    return registered.release();
  } catch (const c10::Error& error) {
    std::snprintf(sentence, size, "%s", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::snprintf(sentence, size, "%s", error.what());
  }
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) void ortisan_unregister(void* handle) {
  delete static_cast<ortisan::Registered*>(handle);
}
