// Copies from pinned host memory, made beside what the program goes on with.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "device/buffer.h"

namespace fuse {

// One thread that copies, in the order of the calls. As on CUDA, a program may write to pinned
// memory again once what it waited for is behind the copy: a read, an event or the stream.
class Copier final {
 public:
  static Copier& global();

  // The value of `target`, dense host memory, once `source` has been copied there: at once where
  // that is quicker than to wake a thread, or PyTorch does not call the source pinned.
  Array copy(at::Tensor target, const at::Tensor& source, bool non_blocking);
  // Returns once all copies of a stream are there.
  void wait(int64_t stream);
  // Returns once all copies are there.
  void wait_all();
  bool idle();
  // How many copies this thread has been given, since the last reset.
  int64_t started();
  void reset();

 private:
  struct Job {
    at::Tensor target;
    at::Tensor source; // not the caller's, who may have given it a Python object
    Array promised;
  };

  void run();
  void wait_for(uint64_t ticket);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::unordered_map<int64_t, uint64_t> last_; // of each stream that may still wait
  uint64_t given_ = 0;
  uint64_t done_ = 0;
  uint64_t counted_from_ = 0;
  bool running_ = false; // the thread is there
};

} // namespace fuse
