// A count of memory, or of what holds it: what there is now, its peak, and all that there was.
#pragma once

#include <atomic>
#include <cstdint>

namespace fuse {

// A counter's values at one time, as PyTorch's statistics have them.
struct MemoryCount {
  int64_t current = 0;
  int64_t peak = 0; // since the last reset
  int64_t allocated = 0; // in all, since the last reset
  int64_t freed = 0;
};

// Thread-safe. Freed is the difference of what there was and what there is.
class MemoryCounter {
 public:
  void add(int64_t amount) {
    if (amount > 0) {
      total_.fetch_add(amount, std::memory_order_relaxed);
    }
    const int64_t now = current_.fetch_add(amount, std::memory_order_relaxed) + amount;
    int64_t seen = peak_.load(std::memory_order_relaxed);
    while (now > seen && !peak_.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  MemoryCount read() const {
    const int64_t current = current_.load();
    const int64_t total = total_.load();
    return {
        current,
        peak_.load(),
        total - total_before_.load(),
        total - current - freed_before_.load()};
  }
  void reset_peak() {
    peak_.store(current_.load());
  }
  void reset_totals() {
    total_before_.store(total_.load());
    freed_before_.store(total_.load() - current_.load());
  }

 private:
  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> total_{0};
  std::atomic<int64_t> total_before_{0}; // at the last reset
  std::atomic<int64_t> freed_before_{0};
};

// Writes a count to PyTorch's own type of one.
template <typename Stat>
void give(Stat& stat, const MemoryCount& count) {
  stat.current = count.current;
  stat.peak = count.peak;
  stat.allocated = count.allocated;
  stat.freed = count.freed;
}

} // namespace fuse
