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
  pinned_.emplace(memory, Use{});
  return {memory, memory, &PinnedAllocator::release, c10::Device(c10::DeviceType::CPU)};
}

bool PinnedAllocator::owns(const void* memory) {
  std::lock_guard<std::mutex> guard(mutex_);
  return pinned_.count(memory) != 0;
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
  pinned_.emplace(memory, Use{});
  return true;
}

bool PinnedAllocator::keep(const void* memory) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = pinned_.find(memory);
  if (found == pinned_.end()) {
    return false;
  }
  ++found->second.copies;
  return true;
}

void PinnedAllocator::let_go(const void* memory) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = pinned_.find(memory);
    if (--found->second.copies != 0 || !found->second.released) {
      return;
    }
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
      all.pinned_.erase(found);
    }
  }
  c10::GetDefaultCPUAllocator()->raw_deallocate(memory);
}

} // namespace fuse
