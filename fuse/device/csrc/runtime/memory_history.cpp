#include "runtime/memory_history.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <chrono>

#include "runtime/python_bridge.h"

namespace fuse {

namespace {

constexpr uint64_t kAlignment = 512; // of CUDA's allocator: neighbours do not touch when drawn

int64_t now() {
  using std::chrono::duration_cast;
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return duration_cast<std::chrono::microseconds>(since).count();
}

} // namespace

MemoryHistory& MemoryHistory::global() {
  static auto* history = new MemoryHistory; // outlives every tensor
  return *history;
}

void MemoryHistory::keep(const Kept& kept, bool forget) {
  const std::lock_guard<std::mutex> guard(mutex_);
  kept_ = kept;
  recorded_.store(kept.storages, std::memory_order_relaxed);
  if (forget) {
    events_.clear();
  }
  if (!kept.storages) {
    live_.clear();
    events_.clear();
  }
}

MemorySnapshot MemoryHistory::snapshot() {
  MemorySnapshot found;
  const std::lock_guard<std::mutex> guard(mutex_);
  for (const auto& [_, storage] : live_) {
    found.storages.push_back(storage);
  }
  std::sort(found.storages.begin(), found.storages.end(), [](const auto& one, const auto& other) {
    return one.address < other.address;
  });
  found.events.assign(events_.begin(), events_.end());
  return found;
}

Stack MemoryHistory::stack_if(bool Kept::* asked) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!(kept_.*asked)) {
      return nullptr;
    }
  }
  const GilGuard gil; // ends a thread that outlives the interpreter
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}

uint64_t MemoryHistory::new_address(size_t nbytes) {
  const uint64_t address = next_;
  next_ += (nbytes / kAlignment + 1) * kAlignment;
  return address;
}

void MemoryHistory::add(MemoryEvent event) {
  if (!kept_.events) {
    return;
  }
  events_.push_back(std::move(event));
  while (events_.size() > kept_.most) {
    events_.pop_front();
  }
}

void MemoryHistory::allocated(const void* storage, size_t nbytes, int8_t device) {
  Stack stack = stack_if(&Kept::stacks);
  const std::lock_guard<std::mutex> guard(mutex_);
  const uint64_t address = new_address(nbytes);
  live_[storage] = {address, nbytes, device, stack};
  add({"alloc", address, nbytes, device, now(), kept_.stacks_of_allocations ? stack : nullptr});
}

void MemoryHistory::freed(const void* storage, size_t nbytes, int8_t device) {
  Stack stack = stack_if(&Kept::stacks_of_frees);
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = live_.find(storage);
  // Of a storage that is older than the history: the visualiser takes it for one from its start.
  const uint64_t address = found == live_.end() ? new_address(nbytes) : found->second.address;
  if (found != live_.end()) {
    live_.erase(found);
  }
  add({"free_requested", address, nbytes, device, now(), stack});
  add({"free_completed", address, nbytes, device, now(), std::move(stack)});
}

void MemoryHistory::resized(const void* storage, size_t before, size_t nbytes, int8_t device) {
  freed(storage, before, device);
  allocated(storage, nbytes, device);
}

void MemoryHistory::refused(size_t nbytes, int8_t device) {
  Stack stack = stack_if(&Kept::stacks_of_allocations);
  const std::lock_guard<std::mutex> guard(mutex_);
  add({"oom", 0, nbytes, device, now(), std::move(stack)});
}

} // namespace fuse
