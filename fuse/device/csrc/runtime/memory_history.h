// The history of the device's storages, as PyTorch's memory visualiser reads it.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace fuse {

// Python's lines at an event; null where they were not asked for.
using Stack = std::shared_ptr<c10::GatheredContext>;

// One event. A storage has an address of the history's own that is never given twice: it has
// none on the device until it is computed, and then it may move.
struct MemoryEvent {
  const char* action; // "alloc", "free_requested", "free_completed" or "oom", as CUDA's
  uint64_t address;
  size_t nbytes;
  int8_t device;
  int64_t microseconds; // since the epoch
  Stack stack;
};

// A storage that was made while the history was recorded, and is alive.
struct LiveStorage {
  uint64_t address;
  size_t nbytes;
  int8_t device;
  Stack stack;
};

struct MemorySnapshot {
  std::vector<LiveStorage> storages; // by address
  std::vector<MemoryEvent> events; // the oldest first
};

// Thread-safe. No lock is held while a stack is gathered, which takes the GIL.
class MemoryHistory {
 public:
  static MemoryHistory& global();

  // Whether anybody records; some 1 ns.
  static bool is_recorded() {
    return recorded_.load(std::memory_order_relaxed);
  }
  // What is kept from here on: nothing, live storages, or these and up to `most` events; and the
  // stacks of the live, of events that allocate, and of those that free.
  struct Kept {
    bool storages = false;
    bool events = false;
    bool stacks = false;
    bool stacks_of_allocations = false;
    bool stacks_of_frees = false;
    size_t most = 0;
  };
  void keep(const Kept& kept, bool forget);
  MemorySnapshot snapshot();

  // A storage, by what stands for it, is made, is gone, has another size, or was refused.
  void allocated(const void* storage, size_t nbytes, int8_t device);
  void freed(const void* storage, size_t nbytes, int8_t device);
  void resized(const void* storage, size_t before, size_t nbytes, int8_t device);
  void refused(size_t nbytes, int8_t device);

 private:
  Stack stack_if(bool Kept::* asked);
  uint64_t new_address(size_t nbytes);
  void add(MemoryEvent event);

  inline static std::atomic<bool> recorded_{false};
  std::mutex mutex_; // of all below
  Kept kept_;
  uint64_t next_ = uint64_t{1} << 40; // addresses
  std::unordered_map<const void*, LiveStorage> live_;
  std::deque<MemoryEvent> events_;
};

} // namespace fuse
