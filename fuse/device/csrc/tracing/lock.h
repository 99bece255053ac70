// The recorder's lock.
#pragma once

#include <atomic>
#include <thread>

#include "runtime/process.h"
#include "runtime/python_bridge.h"
#include "tracing/recorder.h"
#include "tracing/stream_graph_recorder.h"

namespace fuse {

// Holds the recorder's mutex for its lifetime. Never waited for with the GIL held: the holder may
// need the GIL.
class Recorder::Lock {
 public:
  explicit Lock(Recorder& recorder) : mutex_(recorder.mutex_) {
    check_process();
    TORCH_CHECK(
        !held_here(),
        "an operation on the tpu device was called from inside the recorder "
        "(from a finaliser or a signal handler); move it out of there");
    acquire();
    trace_ = &Streams::global().here();
    if (trace_->cursor == nullptr) [[unlikely]] {
      try {
        recorder.builder_.begin_stream(*trace_);
      } catch (...) {
        release();
        throw;
      }
    }
    if (trace_->graph != nullptr && trace_->graph.use_count() == 1) [[unlikely]] {
      drop_graph(recorder.builder_, *trace_); // whoever captured it has lost it
    }
  }
  ~Lock() {
    if (held_) {
      release();
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  // Whether the calling thread holds it.
  static bool held_here() {
    return owner().load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  // The trace that the calling thread's stream has open.
  OpenTrace& trace() {
    return *trace_;
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
  void release() {
    owner().store(std::thread::id(), std::memory_order_relaxed);
    mutex_.unlock();
    held_ = false;
  }
  std::mutex& mutex_;
  OpenTrace* trace_ = nullptr;
  bool held_ = false;
};

} // namespace fuse
