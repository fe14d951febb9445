// Drives one AITemplate model through the glue's functions, with an allocator that fails when told.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ait_model.h"

extern "C" const ortisan::AitModel ortisan_model_0;

namespace {

struct Memory {
  int64_t allocations_left;
  int64_t live = 0, made = 0;
};

void* allocate(void* self, size_t bytes) {
  Memory& memory = *static_cast<Memory*>(self);
  if (memory.allocations_left-- == 0) return nullptr;
  ++memory.live, ++memory.made;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void release(void* self, void* block) {
  --static_cast<Memory*>(self)->live;
  std::free(block);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Creates a model whose allocation number `failing` (from 0) fails, and destroys it; `names` of its two outputs are told. Gives the
// blocks that were left, and fills in the failure's message and the number of allocations.
EXPORT int64_t create_and_destroy(int64_t failing, size_t names, char* message, size_t size, int64_t* made) {
  Memory memory{failing};
  ortisan::AitModelState* state = nullptr;
  const char* const inputs[] = {"i0_", nullptr, "i1_"};
  const char* const outputs[] = {"o0_", "o1_"};
  const char* failure =
      ortisan_model_0.create(0, 2, {&memory, allocate, release}, {inputs, 3}, {outputs, names}, &state);
  std::snprintf(message, size, "%s", failure == nullptr ? "" : failure);
  if (failure == nullptr) ortisan_model_0.destroy(state);
  *made = memory.made;
  return memory.live;
}

namespace {

float numbers[5][64 * 64];

}  // namespace

// A model with its constants, or null and the failure's message. Its inputs are batch 2, seq 3.
EXPORT void* open_model(size_t runtimes, char* message, size_t size) {
  static Memory memory{-1};
  ortisan::AitModelState* state = nullptr;
  const char* const inputs[] = {"i0_", nullptr, "i1_"};
  const char* const outputs[] = {"o0_", "o1_"};
  const char* failure =
      ortisan_model_0.create(0, runtimes, {&memory, allocate, release}, {inputs, 3}, {outputs, 2}, &state);
  const int64_t square = 64 * 64, row = 64;
  const ortisan::AitValue constants[] = {{"c0_", numbers[0], &square, 1, 1},
                                         {"c1_", numbers[1], &row, 1, 1},
                                         {"c2_", numbers[2], &row, 1, 1},
                                         {"c3_", numbers[3], &row, 1, 1}};
  if (failure == nullptr) failure = ortisan_model_0.set_constants(state, constants, 4);
  std::snprintf(message, size, "%s", failure == nullptr ? "" : failure);
  return state;
}

// Queues a run on a stream; fills in the failure's message.
EXPORT void run_model(void* state, void* stream, char* message, size_t size) {
  const int64_t dims[] = {2, 3, 64};
  static float places[4][2 * 3 * 64];
  const ortisan::AitValue inputs[] = {{"i0_", places[0], dims, 3, 1}, {}, {"i1_", places[1], dims, 3, 1}};
  const ortisan::AitValue outputs[] = {{"o0_", places[2], dims, 3, 1}, {"o1_", places[3], dims, 3, 1}};
  const char* failure =
      ortisan_model_0.run(static_cast<ortisan::AitModelState*>(state), inputs, outputs, nullptr, stream);
  std::snprintf(message, size, "%s", failure == nullptr ? "" : failure);
}

EXPORT void close_model(void* state) { ortisan_model_0.destroy(static_cast<ortisan::AitModelState*>(state)); }
