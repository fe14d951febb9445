// What a call may ask for: whether there is anything to compute, and whether all of it can be addressed.
//
// A tensor without elements takes no memory and may carry any other dims. Kernels multiply dims into counts, strides and offsets,
// so a call runs only when every tensor of the graph would fit if its zeros were ones.
#pragma once

#include "bind.h"
#include "element_size.h"

namespace ortisan {

constexpr int64_t most_bytes = int64_t(1) << 47;  // an address has no more bits

inline bool has_elements(const GraphSpec& graph, const TensorSpec& tensor, const int64_t* symbols) {
  for (int32_t d = 0; d < tensor.rank; ++d)
    if (dim_value(graph, tensor.dims[d], symbols) == 0) return false;
  return true;
}

// Whether an output has elements. Without any the call is done when its outputs are made.
inline bool has_work(const GraphSpec& graph, const int64_t* symbols) {
  for (int32_t o = 0; o < graph.output_count; ++o)
    if (has_elements(graph, graph.outputs[o], symbols)) return true;
  return false;
}

// Bytes of a tensor, its zeros taken for ones; unknown when a dim is negative.
inline MaybeInt reach(const GraphSpec& graph, const TensorSpec& tensor, const int64_t* symbols) {
  MaybeInt bytes = max_dim(element_size(tensor.dtype), 1);
  for (int32_t d = 0; d < tensor.rank; ++d) {
    const MaybeInt size = maybe_dim_value(graph, tensor.dims[d], symbols);
    bytes = bytes * (size.value < 0 ? MaybeInt() : max_dim(size, MaybeInt(1)));
  }
  return bytes;
}

namespace binding {

// The dims of a tensor, as "3 x 0 x 4"; cut where they get long.
struct DimsText {
  char text[200];
  bool negative = false;

  DimsText(const GraphSpec& graph, const TensorSpec& tensor, const int64_t* symbols) {
    size_t length = 0;
    text[0] = '\0';
    for (int32_t d = 0; d < tensor.rank && length + 30 < sizeof text; ++d) {
      const MaybeInt size = maybe_dim_value(graph, tensor.dims[d], symbols);
      negative = negative || (size.known && size.value < 0);
      const char* between = d == 0 ? "" : " x ";
      const int written = size.known
                              ? std::snprintf(text + length, sizeof text - length, "%s%" PRId64, between, size.value)
                              : std::snprintf(text + length, sizeof text - length, "%s(over 2^63)", between);
      length += written > 0 ? static_cast<size_t>(written) : 0;
    }
  }
};

}  // namespace binding

// Whether every tensor of the graph can be addressed for these symbols. False with one sentence in `message` when one can't.
inline bool check_sizes(const GraphSpec& graph, const int64_t* symbols, char* message, size_t message_size) {
  for (int32_t v = 0; v < graph.value_count; ++v) {
    const TensorSpec& value = graph.values[v];
    const MaybeInt bytes = reach(graph, value, symbols);
    if (bytes.known && bytes.value <= most_bytes) continue;
    const binding::Sentence error{graph, message, message_size};
    const binding::DimsText dims(graph, value, symbols);
    if (dims.negative) return error.say("'%s' would be %s for these inputs", Name(value.name).text, dims.text);
    return error.say("the inputs are too large: '%s' would be %s, which is over 2^47 bytes with zeros taken for ones",
                     Name(value.name).text, dims.text);
  }
  return true;
}

}  // namespace ortisan
