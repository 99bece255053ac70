// The stream table: a thread's own streams, and those that a program makes.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tracing/open_trace.h"

namespace fuse {

// Every thread begins on a stream of its own, so that threads record side by side without changing
// what the others' traces look like. PyTorch knows a stream by its number: 0 is the one of the
// thread that was first. Thread-safe; its mutex is held for moments, and nothing is waited for.
class Streams {
 public:
  static Streams& global();

  // The calling thread's current stream. 1 ns but for a thread's first call.
  OpenTrace& here() {
    return current_ != nullptr ? *current_ : begin();
  }
  // None where this thread has not met the device yet.
  static OpenTrace* here_if_any() {
    return current_;
  }
  // The stream of this number; the calling thread's own where its thread has ended.
  OpenTrace& find(int64_t id);
  // Makes the stream of this number the calling thread's current one; returns what was.
  int64_t exchange(int64_t id);
  // One of a few that programs share who make more, as they do on CUDA.
  int64_t next_of_pool();
  // All that have been made.
  std::vector<OpenTrace*> all();

 private:
  static constexpr size_t kPool = 32;

  OpenTrace& begin();
  OpenTrace* take();
  OpenTrace* make();

  static constinit thread_local OpenTrace* current_; // constinit: read without a call
  std::mutex mutex_;
  std::vector<OpenTrace*> all_; // never deleted: see OpenTrace
  std::unordered_map<int64_t, OpenTrace*> by_id_;
  std::array<int64_t, kPool> pool_{};
  size_t handed_out_ = 0;
  int64_t next_id_ = 0;
};

} // namespace fuse
