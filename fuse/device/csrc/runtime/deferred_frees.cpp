#include "runtime/deferred_frees.h"

#include "runtime/buffer.h"

namespace fuse {

DeferredFrees& DeferredFrees::global() {
  static auto* list = new DeferredFrees; // outlives every tensor, also at process exit
  return *list;
}

void DeferredFrees::add(Buffer* buffer) {
  // A trace points at live buffers only, so one that none pointed at stays so: no lock for it.
  if (buffer->traces.load(std::memory_order_acquire) != 0) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (buffer->traces.load(std::memory_order_relaxed) != 0) {
      dead_.push_back(buffer);
      return;
    }
  }
  delete buffer;
}

void DeferredFrees::hold(Buffer* buffer) {
  std::lock_guard<std::mutex> guard(mutex_);
  ++buffer->graphs;
  buffer->held();
}

void DeferredFrees::let_go(Buffer* buffer) {
  std::lock_guard<std::mutex> guard(mutex_);
  buffer->let_go();
  if (--buffer->graphs == 0 && buffer->orphaned) {
    dead_.push_back(buffer);
  }
}

std::vector<Buffer*> DeferredFrees::take() {
  std::vector<Buffer*> dead;
  std::lock_guard<std::mutex> guard(mutex_);
  dead.swap(dead_);
  std::erase_if(dead, [](Buffer* buffer) {
    buffer->orphaned = buffer->graphs != 0;
    return buffer->orphaned;
  });
  return dead;
}

} // namespace fuse
