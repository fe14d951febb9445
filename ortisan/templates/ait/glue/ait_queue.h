// How runs queue without waiting for earlier ones. AITemplate asks whether the run before has ended, and waits until it has. What a
// run queues comes behind all that its stream waits for, so the stream waits in place of the host, and the answer is always yes.
#pragma once

#include <cuda_runtime.h>

namespace ortisan {

// The stream that this thread queues a run on.
inline thread_local cudaStream_t stream_of_run = nullptr;

inline cudaError_t queue_behind(cudaEvent_t event) { return cudaStreamWaitEvent(stream_of_run, event, 0); }

}  // namespace ortisan
