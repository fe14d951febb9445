// The part of ONNX Runtime's C ABI that a custom op uses, declared anew: no SDK is needed to build. The ABI only grows at its
// end, so what is written here holds for every release since 1.18.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ort {

struct Status;
struct Value;
struct Allocator;
struct MemoryInfo;
struct SessionOptions;
struct CustomOpDomain;
struct TypeAndShape;
struct KernelInfo;
struct KernelContext;
struct ShapeInferContext;
struct CustomOp;

constexpr uint32_t api_version = 18;

enum ErrorCode : int { fail = 1, invalid_argument = 2, runtime_exception = 6 };
enum Characteristic : int { required = 0 };
enum MemoryType : int { default_memory = 0 };

// OrtApi: a table of function pointers, addressed by slot.
struct Api {
  void (*first)();
};

struct ApiBase {
  const Api* (*get_api)(uint32_t version) noexcept;
  const char* (*version_string)() noexcept;
};

template <int slot, class Signature>
struct Function;

template <int slot, class Result, class... Arguments>
struct Function<slot, Result(Arguments...)> {
  Result operator()(const Api& api, Arguments... arguments) const noexcept {
    void (*const* table)() = &api.first;
    return reinterpret_cast<Result (*)(Arguments...) noexcept>(table[slot])(arguments...);
  }
};

// Functions that return a Status: null is success, anything else belongs to the caller.
constexpr Function<0, Status*(ErrorCode, const char*)> create_status;
constexpr Function<26, Status*(const char*, CustomOpDomain**)> create_custom_op_domain;
constexpr Function<27, Status*(CustomOpDomain*, const CustomOp*)> custom_op_domain_add;
constexpr Function<28, Status*(SessionOptions*, CustomOpDomain*)> add_custom_op_domain;
constexpr Function<51, Status*(Value*, void**)> get_tensor_mutable_data;
constexpr Function<57, Status*(TypeAndShape**)> create_type_and_shape;
constexpr Function<58, Status*(TypeAndShape*, int32_t)> set_element_type;
constexpr Function<59, Status*(TypeAndShape*, const int64_t*, size_t)> set_dimensions;
constexpr Function<60, Status*(const TypeAndShape*, int32_t*)> get_element_type;
constexpr Function<61, Status*(const TypeAndShape*, size_t*)> get_dimensions_count;
constexpr Function<62, Status*(const TypeAndShape*, int64_t*, size_t)> get_dimensions;
constexpr Function<63, Status*(const TypeAndShape*, const char**, size_t)> get_symbolic_dimensions;
constexpr Function<64, Status*(const TypeAndShape*, size_t*)> get_element_count;
constexpr Function<65, Status*(const Value*, TypeAndShape**)> get_type_and_shape;
constexpr Function<72, Status*(const MemoryInfo*, int*)> memory_info_id;
constexpr Function<75, Status*(Allocator*, size_t, void**)> allocator_alloc;
constexpr Function<76, Status*(Allocator*, void*)> allocator_free;
constexpr Function<77, Status*(const Allocator*, const MemoryInfo**)> allocator_info;  // belongs to the allocator
constexpr Function<88, Status*(const KernelContext*, size_t*)> context_input_count;
constexpr Function<90, Status*(const KernelContext*, size_t, const Value**)> context_input;
constexpr Function<91, Status*(KernelContext*, size_t, const int64_t*, size_t, Value**)> context_output;
constexpr Function<130, Status*(SessionOptions*, const char*, const char*)> add_config_entry;
constexpr Function<193, Status*(const KernelContext*, void**)> context_gpu_stream;
constexpr Function<237, Status*(const SessionOptions*, const char*, int*)> has_config_entry;
constexpr Function<238, Status*(const SessionOptions*, const char*, char*, size_t*)> get_config_entry;
constexpr Function<249, Status*(const KernelInfo*, size_t, int*, const Value**)> info_constant_input;
constexpr Function<267, Status*(const ShapeInferContext*, size_t*)> infer_input_count;
constexpr Function<268, Status*(const ShapeInferContext*, size_t, TypeAndShape**)>
    infer_input;  // belongs to the context
constexpr Function<270, Status*(const ShapeInferContext*, size_t, const TypeAndShape*)> infer_set_output;
constexpr Function<271, Status*(TypeAndShape*, const char**, size_t)> set_symbolic_dimensions;
constexpr Function<274, Status*(const KernelContext*, void (*)(void*, size_t), size_t, size_t, void*)>
    context_parallel_for;
constexpr Function<278, Status*(const KernelInfo*, MemoryType, Allocator**)> info_allocator;

constexpr Function<2, const char*(const Status*)> error_message;
constexpr Function<93, void(Status*)> release_status;
constexpr Function<99, void(TypeAndShape*)> release_type_and_shape;
constexpr Function<101, void(CustomOpDomain*)> release_custom_op_domain;
constexpr Function<132, void(Allocator*)> release_allocator;

// OrtCustomOp as of version 18. Fields that this library leaves null are untyped.
struct CustomOp {
  uint32_t version;
  void* (*create_kernel)(const CustomOp*, const Api*, const KernelInfo*);
  const char* (*name)(const CustomOp*);
  const char* (*execution_provider)(const CustomOp*);
  int32_t (*input_type)(const CustomOp*, size_t);
  size_t (*input_count)(const CustomOp*);
  int32_t (*output_type)(const CustomOp*, size_t);
  size_t (*output_count)(const CustomOp*);
  void (*kernel_compute)(void*, KernelContext*);
  void (*kernel_destroy)(void*);
  Characteristic (*input_characteristic)(const CustomOp*, size_t);
  Characteristic (*output_characteristic)(const CustomOp*, size_t);
  MemoryType (*input_memory_type)(const CustomOp*, size_t);
  int (*variadic_input_min_arity)(const CustomOp*);
  int (*variadic_input_homogeneity)(const CustomOp*);
  int (*variadic_output_min_arity)(const CustomOp*);
  int (*variadic_output_homogeneity)(const CustomOp*);
  Status* (*create_kernel_v2)(const CustomOp*, const Api*, const KernelInfo*, void**);
  Status* (*kernel_compute_v2)(void*, KernelContext*);
  Status* (*infer_output_shape)(const CustomOp*, ShapeInferContext*);
  int (*start_version)(const CustomOp*);
  int (*end_version)(const CustomOp*);
  size_t (*may_inplace)(int**, int**);
  void (*release_may_inplace)(int*, int*);
  size_t (*alias_map)(int**, int**);
  void (*release_alias_map)(int*, int*);
};

static_assert(sizeof(void*) == 8, "the offsets below are those of 64-bit builds");
static_assert(offsetof(CustomOp, create_kernel) == 8 && offsetof(CustomOp, name) == 16);
static_assert(offsetof(CustomOp, execution_provider) == 24 && offsetof(CustomOp, input_type) == 32);
static_assert(offsetof(CustomOp, input_count) == 40 && offsetof(CustomOp, output_type) == 48);
static_assert(offsetof(CustomOp, output_count) == 56 && offsetof(CustomOp, kernel_compute) == 64);
static_assert(offsetof(CustomOp, kernel_destroy) == 72 && offsetof(CustomOp, input_characteristic) == 80);
static_assert(offsetof(CustomOp, output_characteristic) == 88 && offsetof(CustomOp, input_memory_type) == 96);
static_assert(offsetof(CustomOp, variadic_input_min_arity) == 104 &&
              offsetof(CustomOp, variadic_output_homogeneity) == 128);
static_assert(offsetof(CustomOp, create_kernel_v2) == 136 && offsetof(CustomOp, kernel_compute_v2) == 144);
static_assert(offsetof(CustomOp, infer_output_shape) == 152 && offsetof(CustomOp, start_version) == 160);
static_assert(offsetof(CustomOp, end_version) == 168 && offsetof(CustomOp, may_inplace) == 176);
static_assert(offsetof(CustomOp, release_may_inplace) == 184 && offsetof(CustomOp, alias_map) == 192);
static_assert(offsetof(CustomOp, release_alias_map) == 200 && sizeof(CustomOp) == 208);

}  // namespace ort
