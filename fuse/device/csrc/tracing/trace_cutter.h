// The interface of what cuts traces.
#pragma once

#include "tracing/cut_reason.h"

namespace fuse {

struct OpenTrace;

class TraceCutter {
 public:
  // Plans and runs what the trace holds, and begins its next one. Under the recorder's mutex.
  virtual void cut_trace(OpenTrace& trace, CutReason reason) = 0;

 protected:
  ~TraceCutter() = default;
};

} // namespace fuse
