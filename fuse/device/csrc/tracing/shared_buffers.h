// Shared buffers: those that several streams record on.
#pragma once

#include "tracing/open_trace.h"
#include "tracing/trace_cutter.h"

namespace fuse {

// A buffer notes its place in one open trace; a trace that has read it too keeps the place aside,
// so that streams that read the same weights do not cut each other. What is computed from such a
// value is right whatever the other stream does: a trace holds the arrays that it read. All under
// the recorder's mutex.

bool finds_elsewhere(OpenTrace& trace, Buffer& buffer, TraceCutter& cutter);
// Whether the trace has met the buffer; notes in the buffer its place in this trace if it has.
// What another stream's trace is to make of it is handed on first.
inline bool finds(OpenTrace& trace, Buffer& buffer, TraceCutter& cutter) {
  return trace.holds(buffer) || finds_elsewhere(trace, buffer, cutter);
}
// No trace but perhaps this one is to know the buffer any more, whose value is another now.
void leave_to(OpenTrace* stream, Buffer& buffer);
// Frees the buffers whose death was deferred.
void free_dead_buffers();
// What the open traces stand on is in use by the trace of this number.
void mark_open_traces(uint64_t serial);
// A number of a call that open traces hold begins to vary.
void vary_in_open_traces(const TrieNode& node, size_t place);

} // namespace fuse
