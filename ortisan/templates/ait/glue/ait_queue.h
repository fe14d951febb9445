// How runs queue without waiting for earlier ones. AITemplate asks whether the run before has ended, and waits until it has. What a
// run queues comes behind all that its stream waits for, so the stream waits in place of the host, and the answer is always yes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "maybe_int.h"

namespace ortisan {

// The stream that this thread queues a run on.
inline thread_local cudaStream_t stream_of_run = nullptr;

// The sizes of that run's dims, in the order of the model's symbols, and where its kernels report an index out of range: the number
// of their op. Kernels of ours are given both.
inline thread_local const int64_t* sizes_of_run = nullptr;
inline thread_local int32_t* fault_of_run = nullptr;

inline cudaError_t queue_behind(cudaEvent_t event) { return cudaStreamWaitEvent(stream_of_run, event, 0); }

}  // namespace ortisan
