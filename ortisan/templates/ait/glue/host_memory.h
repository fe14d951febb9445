// A CPU session's memory, told to the CUDA runtime that stands in. On a GPU there is nothing to tell.
#pragma once

#include "ait_model.h"
#include "element_size.h"

#if defined(ORTISAN_ANY_PROVIDER)
extern "C" int cudaHostRegister(void* block, size_t bytes, unsigned flags);
extern "C" int cudaHostUnregister(void* block);
extern "C" int cudaGetLastError();
#endif

namespace ortisan {
namespace host_memory {

#if defined(ORTISAN_ANY_PROVIDER)
inline void begin(const void* block, size_t bytes, bool read_only) {
  if (block != nullptr && bytes > 0) cudaHostRegister(const_cast<void*>(block), bytes, read_only ? 8 : 0);
}
// Of two tensors at one place the second ends what the first began, which is no error.
inline void end(void* block) {
  if (block != nullptr && cudaHostUnregister(block) != 0) cudaGetLastError();
}
#else
inline void begin(const void*, size_t, bool) {}
inline void end(void*) {}
#endif

// Tensors of a run, for as long as it lasts.
class Lent {
  const AitValue* values;
  size_t count;

 public:
  Lent(const AitValue* v, size_t n, bool read_only) : values(v), count(n) {
    for (size_t i = 0; i < count; ++i) begin(values[i].data, bytes_of(values[i]), read_only);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    for (size_t i = 0; i < count; ++i) end(values[i].data);
  }

 private:
  static size_t bytes_of(const AitValue& value) {
    size_t bytes = value.data == nullptr ? 0 : static_cast<size_t>(element_size(value.dtype));
    for (size_t d = 0; d < value.rank; ++d) bytes *= static_cast<size_t>(value.dims[d]);
    return bytes;
  }
};

}  // namespace host_memory
}  // namespace ortisan
