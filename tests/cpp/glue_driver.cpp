// Opens a custom-op library and registers it in an ONNX Runtime that is too old: enough to pass all that comes before.
#include <dlfcn.h>

#include <cstdint>

#include "driver.h"

namespace {

// The first two members of OrtApiBase, and the first of OrtApi.
struct Api {
  void* (*create_status)(int code, const char* text);
};
struct ApiBase {
  const Api* (*get_api)(uint32_t version);
  const char* (*version_string)();
};

const Api api = {[](int, const char* text) { return static_cast<void*>(strdup(text)); }};
const ApiBase base = {[](uint32_t version) { return version <= 17 ? &api : nullptr; }, [] { return "1.17.3"; }};

}  // namespace

// What the library answers, or why it can't be opened.
EXPORT const char* register_in_old_runtime(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return dlerror();
  using Register = const char* (*)(void* options, const ApiBase* base);
  return reinterpret_cast<Register>(dlsym(library, "RegisterCustomOps"))(nullptr, &base);
}
