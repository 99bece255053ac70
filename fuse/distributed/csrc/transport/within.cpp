#include "transport/within.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

#include "transport/threads.h"

namespace fuse::distributed {

namespace {

constexpr auto kBetweenWaits = std::chrono::milliseconds(100);

struct Run {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
};

} // namespace

bool within(
    Clock::time_point deadline,
    std::function<void()> function,
    const std::function<void()>& check) {
  const auto run = std::make_shared<Run>();
  Threads::global().run([run, function = std::move(function)] {
    std::exception_ptr error;
    try {
      function();
    } catch (...) {
      error = std::current_exception();
    }
    {
      std::lock_guard<std::mutex> guard(run->mutex);
      run->done = true;
      run->error = error;
    }
    run->changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(run->mutex);
  while (!run->done && Clock::now() < deadline) {
    run->changed.wait_until(lock, std::min(deadline, Clock::now() + kBetweenWaits));
    if (!run->done && check) {
      lock.unlock();
      check();
      lock.lock();
    }
  }
  if (run->error) {
    std::rethrow_exception(run->error);
  }
  return run->done;
}

} // namespace fuse::distributed
