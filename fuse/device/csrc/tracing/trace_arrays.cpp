#include "tracing/trace_arrays.h"

#include <torch/csrc/Exceptions.h>

#include "runtime/transfer.h"

namespace fuse {

namespace {

// Waits for a value that a collective makes. That it failed is an error of Python's here, as what
// fails in a plan is: the trace is given up for it.
void settle(const ArrayHandle& value) {
  try {
    value.settle();
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    throw_python_error();
  }
}

PyObject* leaf_array(const OpenTrace& trace, const Leaf& leaf) {
  settle(*leaf.array);
  if (leaf.array->get() == nullptr) {
    leaf.array->replace(to_backend(*leaf.array, leaf.layout, trace.device).get());
  }
  return leaf.array->get();
}

PyObject* leaf_if_any(const OpenTrace& trace, const Leaf& leaf) {
  try {
    return leaf_array(trace, leaf);
  } catch (python_error& error) {
    clear_failure(error);
    return Py_None; // a collective failed, or the device is full: what reads it is lost
  }
}

template <typename Get>
PyRef list_of_leaves(const OpenTrace& trace, const Get& get) {
  PyRef arrays = PyRef::steal(checked(PyList_New(0)));
  for (const Leaf& leaf : trace.leaves) {
    if (leaf.array.defined()) {
      PyList_Append(arrays.get(), get(trace, leaf));
    }
  }
  return arrays;
}

} // namespace

PyRef leaf_arrays(const OpenTrace& trace) {
  return list_of_leaves(trace, leaf_array);
}

PyRef leaf_arrays_if_any(const OpenTrace& trace) {
  return list_of_leaves(trace, leaf_if_any);
}

void keep_conversions(const OpenTrace& trace, PyObject* arrays) {
  Py_ssize_t at = 0;
  for (const Leaf& leaf : trace.leaves) {
    if (leaf.array.defined()) {
      PyObject* array = PyList_GET_ITEM(arrays, at++);
      if (array != leaf.array->get()) {
        leaf.array->replace(array);
      }
    }
  }
}

PyRef packed_words(const OpenTrace& trace) {
  return PyRef::steal(checked(PyBytes_FromStringAndSize(
      reinterpret_cast<const char*>(trace.dynamic.data()),
      static_cast<Py_ssize_t>(trace.dynamic.size() * sizeof(uint64_t)))));
}

void fulfil(Buffer& buffer, PyObject* array) {
  buffer.array = c10::make_intrusive<ArrayHandle>(array);
  buffer.array->has(buffer.nbytes);
  buffer.pending = false;
}

} // namespace fuse
