// The uncompiled segment of a stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace fuse::tiering {

// The segment that a queue runs uncompiled, if it does: a hash of its calls, and how many there
// were. Begins under the recorder's mutex; is read and added to without it, by the threads that
// share the queue in turn.
//
// One that grows too long is looked through for a period: then it is a loop without an end of its
// own, in which nothing is read. From then on the queue's segments are pieces of some periods, and
// each begins with the same call of the period, its mark, until the queue ends one by itself.
class Segment {
 public:
  bool goes_on() const {
    return goes_on_.load(std::memory_order_relaxed);
  }
  // At most so many calls long, or half as many more up to the mark.
  void begin(size_t most);
  // Whether there was one.
  bool end() {
    return goes_on_.exchange(false, std::memory_order_relaxed);
  }
  // One more call, by a hash of its operator and its operands' sizes; `whole` if it is several
  // calls where it is recorded. False where the segment ends before it. Some 3 ns.
  bool add(uint64_t call, bool whole = false) {
    call = (call & ~kWhole) | static_cast<uint64_t>(whole);
    const uint64_t before = stream_.load(std::memory_order_relaxed);
    const uint64_t number = calls_.load(std::memory_order_relaxed);
    if (number >= most_.load(std::memory_order_relaxed) && !finds_loop(number)) [[unlikely]] {
      return false;
    }
    if (call == mark_.load(std::memory_order_relaxed) && is_last_mark()) [[unlikely]] {
      return false;
    }
    history_[number % kRemembered].store(call, std::memory_order_relaxed);
    stream_.store(
        (before ^ call) * 0x9E3779B97F4A7C15ull + (before >> 31), std::memory_order_relaxed);
    calls_.store(number + 1, std::memory_order_relaxed);
    return true;
  }
  uint64_t stream() const {
    return stream_.load(std::memory_order_relaxed);
  }
  uint64_t calls() const {
    return calls_.load(std::memory_order_relaxed);
  }
  // How often a piece's first call has come again where the piece ends; 0 if the queue is in no
  // loop.
  uint32_t again() const {
    return again_.load(std::memory_order_relaxed);
  }
  // The queue has come to an end.
  void forget_loop() {
    again_.store(0, std::memory_order_relaxed);
    mark_.store(kNone, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kRemembered = 16'384; // twice the longest period that is found
  static constexpr uint64_t kWhole = 1;
  static constexpr uint64_t kNone = ~0ull;

  bool finds_loop(uint64_t calls);
  bool is_last_mark() {
    const uint32_t seen = seen_.load(std::memory_order_relaxed) + 1;
    seen_.store(seen, std::memory_order_relaxed);
    return seen >= again();
  }

  std::atomic<bool> goes_on_{false};
  std::atomic<uint64_t> stream_{0}, calls_{0}, most_{0}, mark_{kNone};
  std::atomic<uint32_t> again_{0}, seen_{0}; // marks in a piece, and in this segment so far
  std::unique_ptr<std::atomic<uint64_t>[]> history_; // of the last calls, around
  size_t limit_ = 0;
};

} // namespace fuse::tiering
