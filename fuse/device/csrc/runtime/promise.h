// Promises: values of the device that another thread is still making.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

namespace fuse {

// Made by one thread, kept by another, waited for by whoever reads the value.
class Promise {
 public:
  // There is a value now, or `why` there will be none.
  void settle(std::string why = "");
  bool settled();
  // Returns once there is a value; throws why there will be none. Gives the GIL up meanwhile, and
  // lets the main thread's signal handlers raise.
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool settled_ = false;
  std::string why_;
};

} // namespace fuse
