#include "runtime/pinned.h"

#include <c10/core/CPUAllocator.h>

namespace fuse {

PinnedAllocator& PinnedAllocator::global() {
  static auto* allocator = new PinnedAllocator; // outlives every tensor
  return *allocator;
}

c10::DataPtr PinnedAllocator::allocate(size_t nbytes) {
  void* memory = c10::GetDefaultCPUAllocator()->raw_allocate(nbytes);
  std::lock_guard<std::mutex> guard(mutex_);
  pinned(memory, nbytes);
  return {memory, memory, &PinnedAllocator::release, c10::Device(c10::DeviceType::CPU)};
}

PinnedAllocator::Blocks::iterator PinnedAllocator::around(const void* address) {
  auto found = pinned_.upper_bound(address);
  if (found == pinned_.begin()) {
    return pinned_.end();
  }
  --found;
  const auto past = static_cast<size_t>(
      static_cast<const char*>(address) - static_cast<const char*>(found->first));
  return past == 0 || past < found->second.nbytes ? found : pinned_.end();
}

bool PinnedAllocator::owns(const void* address) {
  std::lock_guard<std::mutex> guard(mutex_);
  return around(address) != pinned_.end();
}

bool PinnedAllocator::adopt(const c10::Storage& storage) {
  c10::DataPtr& data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  void* memory = data.get();
  if (memory == nullptr || data.get_context() != memory ||
      data.get_deleter() != c10::GetDefaultCPUAllocator()->raw_deleter()) {
    return false;
  }
  std::lock_guard<std::mutex> guard(mutex_);
  data.release_context();
  data = {memory, memory, &PinnedAllocator::release, c10::Device(c10::DeviceType::CPU)};
  pinned(memory, storage.nbytes());
  return true;
}

void PinnedAllocator::pinned(const void* memory, size_t nbytes) {
  pinned_.emplace(memory, Use{nbytes});
  if (memory != nullptr) { // of no bytes
    bytes_.add(static_cast<int64_t>(nbytes));
    blocks_.add(1);
  }
}

at::HostStats PinnedAllocator::get_stats() {
  at::HostStats stats;
  for (auto* bytes : {&stats.active_bytes, &stats.allocated_bytes}) {
    give(*bytes, bytes_.read());
  }
  const MemoryCount blocks = blocks_.read();
  for (auto* count : {&stats.active_requests, &stats.allocations}) {
    give(*count, blocks);
  }
  stats.num_host_alloc = blocks.allocated;
  stats.num_host_free = blocks.freed;
  return stats;
}

bool PinnedAllocator::keep(const void* address) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = around(address);
  if (found == pinned_.end()) {
    return false;
  }
  ++found->second.copies;
  return true;
}

void PinnedAllocator::let_go(const void* address) {
  const void* memory = nullptr;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = around(address);
    if (--found->second.copies != 0 || !found->second.released) {
      return;
    }
    memory = found->first;
    freed(found->second.nbytes);
    pinned_.erase(found);
  }
  c10::GetDefaultCPUAllocator()->raw_deallocate(const_cast<void*>(memory));
}

void PinnedAllocator::release(void* memory) {
  {
    PinnedAllocator& all = global();
    std::lock_guard<std::mutex> guard(all.mutex_);
    auto found = all.pinned_.find(memory);
    if (found != all.pinned_.end()) { // none: of no bytes
      if (found->second.copies != 0) {
        found->second.released = true;
        return;
      }
      all.freed(found->second.nbytes);
      all.pinned_.erase(found);
    }
  }
  c10::GetDefaultCPUAllocator()->raw_deallocate(memory);
}

} // namespace fuse
