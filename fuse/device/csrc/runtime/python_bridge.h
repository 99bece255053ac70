// The Python bridge: the GIL, references, and calls of the engine.
#pragma once

#include <Python.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/process.h"

struct python_error;

namespace fuse {

// Holds the GIL for its lifetime, whether or not the thread held it before.
class GilGuard {
 public:
  GilGuard() : state_((stop_if_ending(), PyGILState_Ensure())) {}
  ~GilGuard() {
    PyGILState_Release(state_);
  }
  GilGuard(const GilGuard&) = delete;
  GilGuard& operator=(const GilGuard&) = delete;

 private:
  PyGILState_STATE state_;
};

// Gives the GIL up for its lifetime if the thread holds it.
class GilRelease {
 public:
  GilRelease() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~GilRelease() {
    if (state_ != nullptr) {
      stop_if_ending();
      PyEval_RestoreThread(state_);
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// An owned Python reference. Make, copy and move with the GIL; destruction may be without.
void release_later(PyObject* object);
class PyRef {
 public:
  PyRef() = default;
  static PyRef steal(PyObject* object) {
    PyRef ref;
    ref.object_ = object;
    return ref;
  }
  static PyRef borrow(PyObject* object) {
    Py_XINCREF(object);
    return steal(object);
  }
  PyRef(PyRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PyRef& operator=(PyRef&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  PyRef(const PyRef&) = delete;
  PyRef& operator=(const PyRef&) = delete;
  ~PyRef() {
    if (object_ != nullptr) {
      release_later(object_);
    }
  }
  PyObject* get() const {
    return object_;
  }
  PyObject* release() {
    return std::exchange(object_, nullptr);
  }
  explicit operator bool() const {
    return object_ != nullptr;
  }

 private:
  PyObject* object_ = nullptr;
};

// Drops the references that threads without the GIL queued. Call with the GIL.
void drain_releases();

// The Python side of the core: fuse.device.engine.Engine. Set once at initialisation.
void set_engine(PyObject* engine);
// Calls a method of the engine with a new tuple of arguments; throws on an exception. GIL held.
PyRef call_engine(const char* method, PyRef arguments);
// Throws the current Python exception as a C++ one that PyTorch turns back. GIL held.
[[noreturn]] void throw_python_error();
// Drops an exception of Python's that is said elsewhere; an interrupt is thrown again. GIL held.
void clear_failure(python_error& error);
// `object` unless it is null, which means an exception: then throws. GIL held.
PyObject* checked(PyObject* object);

// Runs the handlers of signals that have come, which may raise. Takes the GIL; no effect off the
// main thread.
void raise_signals();
// Waits for what `lock` guards, and looks for them every tenth of a second. Call without the GIL.
template <typename Done>
void wait_with_signals(
    std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const Done& done) {
  while (!changed.wait_for(lock, std::chrono::milliseconds(100), done)) {
    lock.unlock();
    raise_signals();
    lock.lock();
  }
}

PyRef make_int(int64_t value);
PyRef make_string(const std::string& text);
PyRef int_tuple(c10::ArrayRef<int64_t> values);
PyRef int_tuple(c10::ArrayRef<int32_t> values);
// PyTorch's dtype name without "torch.", for example "float32". Borrowed, interned.
PyObject* dtype_name(c10::ScalarType dtype);
// A tuple that takes over the references of its arguments.
template <typename... Refs>
PyRef pack(Refs&&... refs) {
  PyRef tuple = PyRef::steal(checked(PyTuple_New(sizeof...(refs))));
  Py_ssize_t index = 0;
  (PyTuple_SET_ITEM(tuple.get(), index++, refs.release()), ...);
  return tuple;
}

} // namespace fuse
