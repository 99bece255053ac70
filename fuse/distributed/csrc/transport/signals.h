// Python's signal handlers, while its main thread waits in here.
#pragma once

#include <torch/csrc/Exceptions.h>

namespace fuse::distributed {

// A handler has raised (Ctrl-C does): what was waited for is given up, and its exception goes on.
class Interrupted final : public std::exception {
 public:
  explicit Interrupted(python_error error) : error_(std::move(error)) {}
  const char* what() const noexcept override {
    return "interrupted by a signal";
  }
  const python_error& error() const {
    return error_;
  }

 private:
  python_error error_;
};

// Runs the handlers of signals that have come; throws Interrupted where one raises. No effect on
// other threads than Python's main one.
inline void run_signal_handlers() {
  PyGILState_STATE state = PyGILState_Ensure();
  python_error error;
  const bool raised = PyErr_CheckSignals() != 0;
  if (raised) {
    error.persist();
  }
  PyGILState_Release(state);
  if (raised) {
    throw Interrupted(std::move(error));
  }
}

// How long a wait goes on without them, in milliseconds.
constexpr int kBetweenSignals = 100;

// Whether this thread is one of Python's that waits for its own call.
inline thread_local bool helping = false;

} // namespace fuse::distributed
