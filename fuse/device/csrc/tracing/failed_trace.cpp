#include "tracing/failed_trace.h"

#include <torch/csrc/Exceptions.h>

#include "runtime/python_bridge.h"
#include "tracing/plan_runner.h"
#include "tracing/shared_buffers.h"
#include "tracing/trace_arrays.h"

namespace fuse {

namespace {

struct Failure {
  std::string why;
  PyRef instead; // the error to be raised in place of the trace's, or None
};

// Whether all of what the trace was to make could be computed, an operation at a time; else
// `failure` says more, and which error is to be raised.
bool retry_operations(OpenTrace& trace, Failure& failure) {
  std::vector<TrieNode*> path;
  PyRef nodes = recorded_nodes(*trace.cursor, path);
  PyRef arrays = leaf_arrays_if_any(trace);
  free_dead_buffers();
  const std::vector<int32_t> live = trace.live_values();
  PyRef answer = call_engine(
      "retry",
      pack(
          std::move(nodes),
          int_tuple(live),
          std::move(arrays),
          packed_words(trace),
          make_string(failure.why),
          make_int(trace.device)));
  PyObject* found = PyTuple_GetItem(answer.get(), 0);
  failure.why = PyUnicode_AsUTF8(PyTuple_GetItem(answer.get(), 1));
  failure.instead = PyRef::borrow(PyTuple_GetItem(answer.get(), 2));
  bool whole = true;
  for (size_t at = 0; at < live.size(); ++at) {
    Buffer* buffer = trace.owner[static_cast<size_t>(live[at])];
    PyObject* array = PyList_GetItem(found, static_cast<Py_ssize_t>(at));
    if (array == Py_None) {
      whole = false;
    } else if (buffer != nullptr) {
      Py_INCREF(array);
      fulfil(*buffer, array);
    }
  }
  return whole;
}

void abandon(OpenTrace& trace, const std::string& why) {
  // What existed before the trace, and was not computed, is as it was before it; what it was to
  // make is lost, and says why when it is asked for.
  auto text = std::make_shared<std::string>(why);
  free_dead_buffers();
  trace.give_leaves_back();
  for (Buffer* buffer : trace.owner) {
    if (buffer != nullptr && buffer->pending) {
      buffer->poison = text;
      buffer->pending = false;
    }
  }
}

} // namespace

std::exception_ptr recover(OpenTrace& trace) {
  python_error error;
  error.persist();
  Failure failure{error.what(), PyRef()};
  try {
    if (retry_operations(trace, failure)) {
      return nullptr;
    }
  } catch (python_error& second) {
    clear_failure(second); // what it tried to save is lost, and the trace's error says so
  }
  abandon(trace, failure.why);
  PyObject* instead = failure.instead.get();
  if (instead != nullptr && instead != Py_None) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(instead)), instead);
    python_error other;
    other.persist();
    return std::make_exception_ptr(std::move(other));
  }
  return std::make_exception_ptr(std::move(error));
}

} // namespace fuse
