// The GIL, and a guard that gives it up.
#pragma once

#include <Python.h>

namespace fuse::distributed {

// Gives the GIL up for its lifetime if the thread holds it.
class GilRelease {
 public:
  GilRelease() : state_(PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~GilRelease() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

} // namespace fuse::distributed
