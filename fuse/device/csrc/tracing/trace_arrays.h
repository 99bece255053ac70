// Arrays of a trace: what it reads and makes, as the engine takes them. All with the GIL.
#pragma once

#include "runtime/python_bridge.h"
#include "tracing/open_trace.h"

namespace fuse {

// The arrays of the leaves, in order; waits for those that a collective is still making.
PyRef leaf_arrays(const OpenTrace& trace);
// The same, with None for those that are lost.
PyRef leaf_arrays_if_any(const OpenTrace& trace);
// The engine put conversions of another backend's arrays into the list: leaves keep them.
void keep_conversions(const OpenTrace& trace, PyObject* arrays);
// The numbers that vary, as bytes.
PyRef packed_words(const OpenTrace& trace);
// The buffer has its value; steals the array.
void fulfil(Buffer& buffer, PyObject* array);

} // namespace fuse
