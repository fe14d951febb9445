// An AITemplate model as the glue sees it: plain types, no exceptions, nothing of the C++ library and nothing of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ortisan {

// A tensor in device memory. `data` is null only where it has no elements.
struct AitValue {
  const char* name;  // AITemplate's
  void* data;
  const int64_t* dims;
  size_t rank;
  int32_t dtype;  // ONNX TensorProto number
};

// Where a model takes its buffers from. `allocate` gives null when there is no memory; it is asked for 0 bytes, too.
struct AitMemory {
  void* self;
  void* (*allocate)(void* self, size_t bytes);
  void (*release)(void* self, void* block);
};

// AITemplate's names of a graph's tensors, in the graph's order. Null stands for one that AITemplate does not need.
struct AitNames {
  const char* const* list;
  size_t count;
};

struct AitModelState;

// The functions of a model. Those that return text return null, or why they failed: the text belongs to the calling thread until
// its next call. All make `device` current and leave the thread's own as it was.
struct AitModel {
  // A model with as many runtimes, each with buffers of its own: so many runs on different streams can be computed at once. The
  // model's own order of inputs and outputs depends on its graph; it is looked up here, by name.
  const char* (*create)(int device, size_t runtimes, AitMemory memory, AitNames inputs, AitNames outputs,
                        AitModelState** state);
  void (*destroy)(AitModelState* state);
  // Sets all constants that the model has, folds what depends on them and waits for the device. Once, before the first run. The
  // memory stays the caller's and stays in use.
  const char* (*set_constants)(AitModelState* state, const AitValue* constants, size_t count);
  // Queues a run on a stream and waits for no other: the stream does, where all buffers are in use. Inputs and outputs are in the order of the names; the outputs' dims are
  // checked against those that the model finds; `sizes` are those of the model's symbols. Any number of threads may call it.
  const char* (*run)(AitModelState* state, const AitValue* inputs, const AitValue* outputs, const int64_t* sizes,
                     void* stream);
  // The number of an op of an earlier run, from 1 on, that was given an index out of range, and forgets it. 0: none is known of.
  int32_t (*take_fault)(AitModelState* state);
};

}  // namespace ortisan
