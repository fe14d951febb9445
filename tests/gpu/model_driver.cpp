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
