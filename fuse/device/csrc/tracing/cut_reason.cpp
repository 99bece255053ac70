#include "tracing/cut_reason.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace fuse {

CutReason cut_reason_of(std::string_view name) {
  const auto* found = std::find(kCutReasonNames.begin(), kCutReasonNames.end(), name);
  TORCH_CHECK(found != kCutReasonNames.end(), "no trace is cut for the reason '", name, "'");
  return static_cast<CutReason>(found - kCutReasonNames.begin());
}

} // namespace fuse
