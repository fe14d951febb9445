// Where a kernel reads its weights: where ONNX Runtime has them (a mapped file: 4 KB pages, shared between processes), or in a
// copy on 2 MB pages. Kernels of one process with the same graph and equal weights share one copy.
#pragma once

#include <pthread.h>

#include "execution.h"
#include "huge_pages.h"

namespace ortisan {

enum class Weights : uint8_t { automatic, mapped, huge };

// The meaning of a session's setting; false when it has none.
inline bool parse_weights(const char* text, Weights* meaning) {
  constexpr const char* names[] = {"auto", "mapped", "huge"};
  for (uint8_t i = 0; i < 3; ++i) {
    if (std::strcmp(text, names[i]) != 0) continue;
    *meaning = static_cast<Weights>(i);
    return true;
  }
  return false;
}

// A copy of all weights of a graph that a run reads as a whole, one after the other on 64-byte boundaries.
struct WeightCopy {
  const GraphSpec* graph;
  char* data;
  size_t bytes;
  int64_t users;
  WeightCopy* next;
};

// All copies of this library in the process. The lock is held while weights are copied, so that sessions which are opened at
// the same time end up with one copy.
struct WeightCopies {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  WeightCopy* first = nullptr;
};
inline WeightCopies weight_copies;

// Calls visit(index, offset in the copy, bytes) for each weight that is copied; returns the size of the copy.
template <class Visit>
size_t each_copied(const GraphSpec& graph, Visit&& visit) {
  size_t end = 0;
  for (int32_t w = 0; w < graph.weight_count; ++w) {
    if (graph.weights[w].looked_up) continue;
    const size_t bytes = static_cast<size_t>(graph.weights[w].bytes);
    visit(w, end, bytes);
    end += (bytes + 63) & ~size_t{63};
  }
  return end;
}

inline size_t copied_bytes(const GraphSpec& graph) {
  return each_copied(graph, [](int32_t, size_t, size_t) {});
}

// Addresses say nothing: each session maps the file anew, and an address may be used again. So contents are compared, which
// costs less than copying them.
inline bool holds(const WeightCopy& copy, const GraphSpec& graph, const void* const* weights) {
  if (copy.graph != &graph) return false;
  bool equal = true;
  each_copied(graph, [&](int32_t w, size_t offset, size_t bytes) {
    equal = equal && std::memcmp(copy.data + offset, weights[w], bytes) == 0;
  });
  return equal;
}

inline WeightCopy* make_copy(const GraphSpec& graph, const void* const* weights) {
  const size_t bytes = copied_bytes(graph);
  char* data = take_pages(bytes);
  if (data == nullptr) return nullptr;
  auto* copy = static_cast<WeightCopy*>(std::malloc(sizeof(WeightCopy)));
  if (copy == nullptr) {
    give_pages_back(data, bytes);
    return nullptr;
  }
  each_copied(graph, [&](int32_t w, size_t offset, size_t size) { std::memcpy(data + offset, weights[w], size); });
  *copy = {&graph, data, bytes, 0, nullptr};
  return copy;
}

// Finds or makes a copy and points the weights at it. Null when there is no memory for one: the weights stay where they are.
inline WeightCopy* use_copy(const GraphSpec& graph, const void** weights) {
  pthread_mutex_lock(&weight_copies.lock);
  WeightCopy* copy = weight_copies.first;
  while (copy != nullptr && !holds(*copy, graph, weights)) copy = copy->next;
  if (copy == nullptr && (copy = make_copy(graph, weights)) != nullptr) {
    copy->next = weight_copies.first;
    weight_copies.first = copy;
  }
  if (copy != nullptr) ++copy->users;
  pthread_mutex_unlock(&weight_copies.lock);
  if (copy != nullptr) each_copied(graph, [&](int32_t w, size_t offset, size_t) { weights[w] = copy->data + offset; });
  return copy;
}

inline void leave_copy(WeightCopy* copy) {
  if (copy == nullptr) return;
  pthread_mutex_lock(&weight_copies.lock);
  if (--copy->users == 0) {
    WeightCopy** at = &weight_copies.first;
    while (*at != copy) at = &(*at)->next;
    *at = copy->next;
    give_pages_back(copy->data, copy->bytes);
    std::free(copy);
  }
  pthread_mutex_unlock(&weight_copies.lock);
}

// Whether a graph's weights are to be copied. A copy that can't have 2 MB pages is worth nothing, whoever asks for it.
inline bool wants_copy(const GraphSpec& graph, Weights setting) {
  if (setting == Weights::mapped || (setting == Weights::automatic && !graph.execution->thin)) return false;
  const size_t bytes = copied_bytes(graph);
  if (bytes == 0) return false;
  const Machine machine = this_machine();
  return setting == Weights::huge ? machine.huge_pages : copy_pays(graph.execution->thin, bytes, machine);
}

}  // namespace ortisan
