// Products of a warp on tensor cores: C[16,8] += A[16,K] B[K,8], summed in float32.
//
// Thread `lane` has group = lane / 4 and thread = lane % 4. It holds of C the rows `group` and `group + 8`, columns
// 2 thread and 2 thread + 1: c[0], c[1] of the first row, c[2], c[3] of the second.
#pragma once

#include "flash_call.cuh"

namespace ortisan {

// 16-bit types: K = 16, two elements a register.
template <class T>
__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ inline void multiply<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

template <>
__device__ inline void multiply<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t shared_address(const void* at) { return uint32_t(__cvta_generic_to_shared(at)); }

// Four matrices of 8 x 8 16-bit elements; lanes 8 i to 8 i + 7 say where the rows of the i-th are.
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void load_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline uint32_t packed(__half low, __half high) {
  return uint32_t(__half_as_ushort(low)) | uint32_t(__half_as_ushort(high)) << 16;
}

__device__ inline uint32_t packed(__nv_bfloat16 low, __nv_bfloat16 high) {
  return uint32_t(__bfloat16_as_ushort(low)) | uint32_t(__bfloat16_as_ushort(high)) << 16;
}

// A float as a sum of two TF32 numbers, near its 24 bits.
struct Split {
  uint32_t large, small;
};

__device__ inline uint32_t to_tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

__device__ inline Split split(float x) {
  const uint32_t large = to_tf32(x);
  return {large, to_tf32(x - __uint_as_float(large))};
}

__device__ inline void multiply_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A[16,8] in two parts; K = 8.
struct SplitRows {
  uint32_t large[4], small[4];

  __device__ void set(int register_, float x) {
    const Split parts = split(x);
    large[register_] = parts.large;
    small[register_] = parts.small;
  }
};

// Three TF32 products: all but small times small.
__device__ inline void multiply(float (&c)[4], const SplitRows& a, float x0, float x1) {
  const Split b0 = split(x0), b1 = split(x1);
  multiply_tf32(c, a.small, b0.large, b1.large);
  multiply_tf32(c, a.large, b0.small, b1.small);
  multiply_tf32(c, a.large, b0.large, b1.large);
}

}  // namespace ortisan
