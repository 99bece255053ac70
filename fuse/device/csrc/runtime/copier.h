// The copy thread: copies from pinned host memory, beside what the program goes on with.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/buffer.h"
#include "runtime/promise.h"

namespace fuse {

// One thread that copies, in the order of the calls. As on CUDA, a program may write to pinned
// memory again once what it waited for is behind the copy: a read, an event or the stream. Waits
// give the GIL up, and let the main thread's signal handlers raise.
class Copier final {
 public:
  // The number of a copy; those with smaller ones come before it. 0 is none.
  using Ticket = uint64_t;

  static Copier& global();

  // The value of `target`, dense host memory, once `source` has been copied there: at once where
  // that is quicker than to wake a thread, or PyTorch does not call the source pinned. A copy that
  // is not `non_blocking` comes after those of `stream`, the caller's.
  Array copy(at::Tensor target, const at::Tensor& source, bool non_blocking, int64_t stream);
  // The last copy of a stream, by its number: the stream's thread may have ended.
  Ticket last_of(int64_t stream);
  // What waits for the stream from here on waits for this copy, too.
  void follow(int64_t stream, Ticket ticket);
  // Returns once a copy is there; at once where none is under way.
  void wait(Ticket ticket);
  void wait_for_stream(int64_t stream) {
    if (!idle()) {
      wait(last_of(stream));
    }
  }
  void wait_for_all();
  bool idle() const {
    return done_.load(std::memory_order_acquire) == given_.load(std::memory_order_acquire);
  }
  // How many copies this thread has been given, since the last reset.
  int64_t started() const {
    return static_cast<int64_t>(given_.load() - counted_from_.load());
  }
  void reset() {
    counted_from_.store(given_.load());
  }

 private:
  struct Job {
    at::Tensor target;
    at::Tensor source; // memory alone: what a program's storage is may change or die meanwhile
    std::shared_ptr<Promise> promise;
  };

  void give(Job job, int64_t stream);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::unordered_map<int64_t, Ticket> last_; // of each stream that may still wait
  std::atomic<Ticket> given_{0};
  std::atomic<Ticket> done_{0};
  std::atomic<Ticket> counted_from_{0};
  bool running_ = false; // the thread is there
};

} // namespace fuse
