// Streams and events. Work is done when it is queued, but nobody may rely on it: an event is pending until somebody waits for it,
// for its stream or its device, or has asked for it a few times.
#include <map>
#include <set>

#include "runtime.h"

using namespace ortisan::cuda;

namespace {

constexpr int questions = 3;  // until a pending event is over

struct Stream {
  int device;
  bool capturing = false;
};
struct Event {
  int device;
  cudaStream_t stream = nullptr;
  int left = 0;  // questions; 0 when it is over
};
std::map<cudaStream_t, Stream> streams;
std::map<cudaEvent_t, Event> events;
uintptr_t handles = 0;

template <class Handle>
Handle next_handle() {
  return reinterpret_cast<Handle>(0x1000 + 16 * ++handles);
}

Event* find(cudaEvent_t event) {
  const auto found = events.find(event);
  return found == events.end() ? nullptr : &found->second;
}

// Needs the lock. The default streams are everybody's.
bool is_known(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream) <= 2 || streams.count(stream) != 0; }

}  // namespace

namespace ortisan::cuda {

bool is_stream(cudaStream_t stream) {
  std::lock_guard<std::mutex> guard(lock());
  return is_known(stream);
}

bool is_capturing(cudaStream_t stream) {
  std::lock_guard<std::mutex> guard(lock());
  const auto found = streams.find(stream);
  return found != streams.end() && found->second.capturing;
}

void finish_all(int device) {
  std::lock_guard<std::mutex> guard(lock());
  for (auto& [handle, event] : events)
    if (event.device == device) event.left = 0;
}

}  // namespace ortisan::cuda

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  std::lock_guard<std::mutex> guard(lock());
  *stream = next_handle<cudaStream_t>();
  streams[*stream] = {current_device()};
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard<std::mutex> guard(lock());
  return streams.erase(stream) == 1 ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t failure = called(__func__)) return failure;
  std::lock_guard<std::mutex> guard(lock());
  if (!is_known(stream)) return fail(cudaErrorInvalidResourceHandle);
  for (auto& [handle, event] : events)
    if (event.stream == stream) event.left = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t failure = called(__func__)) return failure;
  std::lock_guard<std::mutex> guard(lock());
  return is_known(stream) && find(event) != nullptr ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return is_stream(stream) ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  std::lock_guard<std::mutex> guard(lock());
  const auto found = streams.find(stream);
  if (found == streams.end()) return fail(cudaErrorStreamCaptureUnsupported);
  found->second.capturing = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::lock_guard<std::mutex> guard(lock());
  const auto found = streams.find(stream);
  *graph = nullptr;
  if (found == streams.end() || !found->second.capturing) return fail(cudaErrorInvalidValue);
  found->second.capturing = false;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return fail(cudaErrorNotSupported);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return fail(cudaErrorNotSupported);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return fail(cudaErrorNotSupported); }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  if (const cudaError_t failure = called(__func__)) return failure;
  std::lock_guard<std::mutex> guard(lock());
  *event = next_handle<cudaEvent_t>();
  events[*event] = {current_device()};
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::lock_guard<std::mutex> guard(lock());
  return events.erase(event) == 1 ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t failure = called(__func__)) return failure;
  std::lock_guard<std::mutex> guard(lock());
  Event* found = find(event);
  if (found == nullptr || !is_known(stream)) return fail(cudaErrorInvalidResourceHandle);
  found->stream = stream;
  found->left = questions;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t failure = called(__func__)) return failure;
  std::lock_guard<std::mutex> guard(lock());
  Event* found = find(event);
  if (found == nullptr) return fail(cudaErrorInvalidResourceHandle);
  if (found->left == 0 || --found->left == 0) return cudaSuccess;
  return cudaErrorNotReady;  // which is no error, and never the last one
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t failure = called(__func__)) return failure;
  std::lock_guard<std::mutex> guard(lock());
  Event* found = find(event);
  if (found == nullptr) return fail(cudaErrorInvalidResourceHandle);
  found->left = 0;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
  std::lock_guard<std::mutex> guard(lock());
  *milliseconds = 0;
  if (find(first) == nullptr || find(last) == nullptr) return fail(cudaErrorInvalidResourceHandle);
  return find(last)->left == 0 ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
  return cudaEventElapsedTime(milliseconds, first, last);
}

}  // extern "C"
