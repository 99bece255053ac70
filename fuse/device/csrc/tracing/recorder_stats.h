// Counters of the recorder.
#pragma once

#include <array>
#include <cstdint>

#include "tracing/cut_reason.h"

namespace fuse {

struct RecorderStats {
  uint64_t operations = 0, known = 0, traces = 0, nodes = 0, uncompiled = 0, prunes = 0;
  uint64_t started_early = 0, started_in_vain = 0; // traces begun early: with their plan, or not
  uint64_t uncompiled_segments = 0;
  std::array<uint64_t, kCutReasons> cuts{};
};

} // namespace fuse
