// Recovery of a trace whose plan could not be made or run.
#pragma once

#include <exception>

#include "tracing/open_trace.h"

namespace fuse {

// Computes of the trace what can be computed, an operation at a time. None where that was all of
// it; else what it was to make is lost, and says why when it is asked for, and the error to be
// raised is returned. GIL held, with the trace's error set in Python; throws an interrupt.
std::exception_ptr recover(OpenTrace& trace);

} // namespace fuse
