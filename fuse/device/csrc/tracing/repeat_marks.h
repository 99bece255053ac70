// Learned repeat marks: where a stream without an end of its own is cut.
#pragma once

#include "tracing/open_trace.h"

namespace fuse {

// A long stream without a host read: finds the smallest period of its tail and has the stream's
// next trace marked at a multiple of it, so that cuts fall at the same place for ever. Traces have
// at most `limit` operations.
void learn_period(OpenTrace& trace, size_t limit);

} // namespace fuse
