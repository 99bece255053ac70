// What torch.compile calls of the core: see recorder/compiled.h.
#pragma once

#include <Python.h>

namespace fuse {

// graph(alone) -> capsule
PyObject* make_graph(PyObject* module, PyObject* alone);
// replay(graph, inputs) -> list of results, or None where the graph is not known here
PyObject* replay_graph(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
// begin_capture(graph, inputs) -> bool
PyObject* begin_capture(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
// end_capture(graph or None, inputs, results) -> why it cannot be replayed, "" if it can
PyObject* end_capture(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

} // namespace fuse
