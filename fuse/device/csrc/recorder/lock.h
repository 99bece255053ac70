#pragma once

#include <atomic>
#include <thread>

#include "device/process.h"
#include "device/python_bridge.h"
#include "recorder/recorder.h"

namespace fuse {

// The recorder's mutex. Never waited for with the GIL held: the holder may need the GIL.
class Recorder::Lock {
 public:
  explicit Lock(Recorder& recorder) : mutex_(recorder.mutex_) {
    check_process();
    TORCH_CHECK(
        owner().load(std::memory_order_relaxed) != std::this_thread::get_id(),
        "an operation on the tpu device was called from inside the recorder "
        "(from a finaliser or a signal handler); move it out of there");
    acquire();
    recorder.open_ = &Streams::global().here();
    if (recorder.open_->cursor == nullptr) [[unlikely]] {
      try {
        recorder.begin_stream();
      } catch (...) {
        release();
        throw;
      }
    }
  }
  ~Lock() {
    if (held_) {
      release();
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void release() {
    owner().store(std::thread::id(), std::memory_order_relaxed);
    mutex_.unlock();
    held_ = false;
  }

 private:
  static std::atomic<std::thread::id>& owner() {
    static std::atomic<std::thread::id> thread{};
    return thread;
  }
  void acquire() {
    if (!mutex_.try_lock()) {
      GilRelease released;
      mutex_.lock();
    }
    owner().store(std::this_thread::get_id(), std::memory_order_relaxed);
    held_ = true;
  }
  std::mutex& mutex_;
  bool held_ = false;
};

} // namespace fuse
