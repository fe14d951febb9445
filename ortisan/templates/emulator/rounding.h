// The rounding mode of an instruction, while it is computed.
#pragma once

#include <cfenv>

#include "machine.h"

namespace ortisan::emulator {

class Rounding {
 public:
  explicit Rounding(uint32_t flags) : mode_((flags & kRoundMask) >> kRoundShift) {
    static constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (mode_ != 0) std::fesetround(modes[mode_]);
  }
  ~Rounding() {
    if (mode_ != 0) std::fesetround(FE_TONEAREST);
  }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  uint32_t mode_;
};

}  // namespace ortisan::emulator
