#include "device/promise.h"

#include <c10/util/Exception.h>

#include <chrono>

#include "device/python_bridge.h"

namespace fuse {

namespace {

constexpr auto kBetweenSignals = std::chrono::milliseconds(100);

// Runs the handlers of signals that have come, which may raise. No effect off the main thread.
void raise_signals() {
  if (Py_IsInitialized() == 0) {
    return;
  }
  GilGuard gil;
  if (PyErr_CheckSignals() != 0) {
    throw_python_error();
  }
}

} // namespace

void Promise::settle(std::string why) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    settled_ = true;
    why_ = std::move(why);
  }
  changed_.notify_all();
}

bool Promise::settled() {
  std::lock_guard<std::mutex> guard(mutex_);
  return settled_;
}

void Promise::wait() {
  const bool had_gil = PyGILState_Check() != 0;
  {
    GilRelease released;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, kBetweenSignals, [this] { return settled_; })) {
      if (had_gil) {
        lock.unlock();
        raise_signals();
        lock.lock();
      }
    }
  }
  TORCH_CHECK(why_.empty(), why_);
}

} // namespace fuse
