// The deferred-free list of buffers.
#pragma once

#include <mutex>
#include <vector>

namespace fuse {

struct Buffer;

// Buffers that died while a trace points at them; they are freed under the recorder's mutex.
class DeferredFrees {
 public:
  static DeferredFrees& global();
  // Frees the buffer at once where no trace points at it.
  void add(Buffer* buffer);
  // Those that no graph points at.
  std::vector<Buffer*> take();
  // A graph points at the buffer, or does no more.
  void hold(Buffer* buffer);
  void let_go(Buffer* buffer);
  std::mutex& mutex() {
    return mutex_;
  }

 private:
  std::mutex mutex_;
  std::vector<Buffer*> dead_;
};

} // namespace fuse
