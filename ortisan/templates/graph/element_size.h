// Bytes per element of ONNX's TensorProto types; 0 for types that have no whole number of bytes.
#pragma once

#include <cstdint>

namespace ortisan {

constexpr int64_t element_size(int32_t dtype) {
  switch (dtype) {
    case 2:
    case 3:
    case 9: return 1;                                // uint8, int8, bool
    case 17:
    case 18:
    case 19:
    case 20: return 1;                    // the float8 family
    case 4:
    case 5:
    case 10:
    case 16: return 2;                      // uint16, int16, float16, bfloat16
    case 1:
    case 6:
    case 12: return 4;                               // float, int32, uint32
    case 7:
    case 11:
    case 13: return 8;                              // int64, double, uint64
    default: return 0;
  }
}

}  // namespace ortisan
