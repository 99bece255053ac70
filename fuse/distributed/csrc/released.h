// The GIL, given up for a while.
#pragma once

#include <Python.h>

namespace fuse::distributed {

// Gives the GIL up for its lifetime if the thread holds it.
class Released {
 public:
  Released() : state_(PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~Released() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* state_;
};

} // namespace fuse::distributed
