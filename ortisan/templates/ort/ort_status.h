// Makes, and gets rid of, ONNX Runtime's statuses.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "ort_abi.h"

namespace ortisan {

constexpr size_t sentence_size = 1024;

// A status with a printf-formatted sentence.
__attribute__((format(printf, 3, 4))) inline ort::Status* refuse(const ort::Api& api, ort::ErrorCode code,
                                                                 const char* format, ...) {
  char sentence[sentence_size];
  va_list values;
  va_start(values, format);
  std::vsnprintf(sentence, sizeof sentence, format, values);
  va_end(values);
  return ort::create_status(api, code, sentence);
}

inline ort::Status* out_of_memory(const ort::Api& api, const char* what) {
  return refuse(api, ort::fail, "%.100s: out of memory", what);
}

// For calls whose failure has no consequence but to be noticed: releases the status and tells whether it was a success.
inline bool succeeded(const ort::Api& api, ort::Status* status) {
  if (status == nullptr) return true;
  ort::release_status(api, status);
  return false;
}

}  // namespace ortisan
