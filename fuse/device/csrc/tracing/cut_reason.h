// Cut reasons: why a trace is cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fuse {

// The closed list of reasons; Python knows them by their names.
enum class CutReason : uint8_t {
  HostRead,
  Synchronize,
  OptimizerStep,
  RepeatMark,
  HostFallback,
  Collective,
  ModeChange,
  SizeBound,
  EveryOperation,
  DeviceChange,
  Compiled,
  OtherStream,
  Graph,
  Tier, // what follows a compiled graph runs uncompiled
};

constexpr std::array kCutReasonNames{
    "host_read",
    "synchronize",
    "optimizer_step",
    "repeat_mark",
    "host_fallback",
    "collective",
    "mode_change",
    "size_bound",
    "every_operation",
    "device_change",
    "compiled",
    "other_stream",
    "graph",
    "tier"};
constexpr size_t kCutReasons = kCutReasonNames.size();
static_assert(static_cast<size_t>(CutReason::Tier) + 1 == kCutReasons);

constexpr const char* name_of(CutReason reason) {
  return kCutReasonNames[static_cast<size_t>(reason)];
}
// The reason of this name; throws for a name that there is not.
CutReason cut_reason_of(std::string_view name);

} // namespace fuse
