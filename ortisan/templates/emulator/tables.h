// The handlers of each source: tables that end with an empty row.
#pragma once

#include "machine.h"

namespace ortisan::emulator {

extern const Entry kControl[], kInteger[], kLogic[], kMove[], kFloat[], kRounded[], kCompare[], kConvert[], kHalf[],
    kMemory[], kAtomic[], kMatrix[], kWarp[], kApproximate[];

}  // namespace ortisan::emulator
