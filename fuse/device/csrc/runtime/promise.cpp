#include "runtime/promise.h"

#include <c10/util/Exception.h>

#include "runtime/python_bridge.h"

namespace fuse {

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
  {
    GilRelease released;
    std::unique_lock<std::mutex> lock(mutex_);
    wait_with_signals(changed_, lock, [this] { return settled_; });
  }
  TORCH_CHECK(why_.empty(), why_);
}

} // namespace fuse
