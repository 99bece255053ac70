// The uncompiled segment of a stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fuse::tiering {

// The segment that a queue runs uncompiled, if it does: a hash of its calls, and how many there
// were. Begins under the recorder's mutex; is read and added to without it, by the threads that
// share the queue in turn.
class Segment {
 public:
  bool goes_on() const {
    return goes_on_.load(std::memory_order_relaxed);
  }
  // At most so many calls long.
  void begin(size_t most) {
    most_ = most;
    for (auto* sum : {&stream_, &calls_, &again_}) {
      sum->store(0, std::memory_order_relaxed);
    }
    goes_on_.store(true, std::memory_order_relaxed);
  }
  // Whether there was one.
  bool end() {
    return goes_on_.exchange(false, std::memory_order_relaxed);
  }
  // One more call, by a hash of its operator and its operands' sizes; false where it is too many.
  // Some 3 ns.
  bool add(uint64_t call) {
    const uint64_t before = stream_.load(std::memory_order_relaxed);
    const uint64_t number = calls_.load(std::memory_order_relaxed);
    if (number == 0) {
      first_.store(call, std::memory_order_relaxed);
    } else if (call == first_.load(std::memory_order_relaxed)) {
      again_.store(again_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    stream_.store(
        (before ^ call) * 0x9E3779B97F4A7C15ull + (before >> 31), std::memory_order_relaxed);
    calls_.store(number + 1, std::memory_order_relaxed);
    return number < most_;
  }
  uint64_t stream() const {
    return stream_.load(std::memory_order_relaxed);
  }
  uint64_t calls() const {
    return calls_.load(std::memory_order_relaxed);
  }
  // Whether its first call came again and again: a loop without an end of its own.
  bool is_loop() const {
    return again_.load(std::memory_order_relaxed) >= kAgain;
  }

 private:
  static constexpr uint64_t kAgain = 8;

  std::atomic<bool> goes_on_{false};
  std::atomic<uint64_t> stream_{0}, calls_{0}, first_{0}, again_{0};
  size_t most_ = 0;
};

} // namespace fuse::tiering
