// Pinned memory: host memory that answers is_pinned().
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>

#include "runtime/memory_counter.h"

namespace fuse {

// Page-aligned host memory. XLA copies from any host memory alike; what is pinned may be copied
// beside the program, which writes to it only once it has waited. Thread-safe.
class PinnedAllocator final : public at::HostAllocator { // torch.accelerator's calls
 public:
  static PinnedAllocator& global();

  c10::DataPtr allocate(size_t nbytes) override;
  c10::DeleterFnPtr raw_deleter() const override {
    return &PinnedAllocator::release;
  }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
  // Nothing is cached: memory is freed with its last use.
  bool record_event(void*, void*, c10::Stream) override {
    return false;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override {
    bytes_.reset_totals();
    blocks_.reset_totals();
  }
  void reset_peak_stats() override {
    bytes_.reset_peak();
    blocks_.reset_peak();
  }

  // Whether an address lies in pinned memory.
  bool owns(const void* address);
  // Pins the memory of a storage where it lies; false where it is not the CPU allocator's own.
  bool adopt(const c10::Storage& storage);
  // Keeps the memory around an address from being freed, also where its storage is resized or dies,
  // until as many calls of `let_go`; false for what is not pinned.
  bool keep(const void* address);
  void let_go(const void* address);

 private:
  struct Use {
    size_t nbytes = 0;
    int copies = 0; // that read it
    bool released = false; // by its storage: freed with the last of them
  };

  using Blocks = std::map<const void*, Use, std::less<>>; // by where they begin

  static void release(void* memory);
  Blocks::iterator around(const void* address); // under the mutex
  void pinned(const void* memory, size_t nbytes); // under the mutex
  void freed(size_t nbytes) {
    bytes_.add(-static_cast<int64_t>(nbytes));
    blocks_.add(-1);
  }

  std::mutex mutex_; // of the map
  Blocks pinned_;
  MemoryCounter bytes_;
  MemoryCounter blocks_;
};

} // namespace fuse
