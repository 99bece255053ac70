// Threads for what follows a collective: chained functions, which may wait for other collectives.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace fuse::distributed {

// As many threads as there are functions at a time, kept for the next ones: a bounded number could
// all be waiting for what none is left to do. They end with the process.
class Threads {
 public:
  static Threads& global() {
    static auto* threads = new Threads; // its threads outlive static destruction
    return *threads;
  }

  void run(std::function<void()> function) {
    std::lock_guard<std::mutex> guard(mutex_);
    waiting_.push_back(std::move(function));
    if (idle_ >= waiting_.size()) {
      changed_.notify_one();
    } else {
      std::thread([this] { serve(); }).detach();
    }
  }

 private:
  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      --idle_;
      std::function<void()> function = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      function();
      function = nullptr; // what it holds is let go of without the mutex
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  size_t idle_ = 0;
};

} // namespace fuse::distributed
