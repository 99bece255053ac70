#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace fuse {

// What runs uncompiled because its stream has not come by often enough, or waits for executables.
// One a stream of calls; read and added to without the recorder's mutex, by the threads that share
// that stream in turn.
class Sighting {
 public:
  bool goes_on() const {
    return goes_on_.load(std::memory_order_relaxed);
  }
  // It begins with a call, one of those that differ in sizes and numbers only. Under the mutex.
  void begin(uint64_t first, uint64_t kind, size_t most) {
    first_ = first;
    kind_ = kind;
    most_ = most;
    for (auto* sum : {&stream_, &calls_, &elements_}) {
      sum->store(0, std::memory_order_relaxed);
    }
    goes_on_.store(true, std::memory_order_relaxed);
  }
  // Whether there was one.
  bool end() {
    return goes_on_.exchange(false, std::memory_order_relaxed);
  }
  // It was too long; whether the one before was, which is told once. Under the mutex.
  void exhaust() {
    exhausted_ = true;
  }
  bool was_exhausted() {
    return std::exchange(exhausted_, false);
  }
  // One more call that reads so many elements; false where it is too long.
  bool add(uint64_t call, uint64_t elements) {
    const uint64_t before = stream_.load(std::memory_order_relaxed);
    stream_.store(
        (before ^ call) * 0x9E3779B97F4A7C15ull + (before >> 31), std::memory_order_relaxed);
    elements_.fetch_add(elements, std::memory_order_relaxed);
    return calls_.fetch_add(1, std::memory_order_relaxed) < most_;
  }
  uint64_t first() const {
    return first_;
  }
  uint64_t kind() const {
    return kind_;
  }
  uint64_t stream() const {
    return stream_.load(std::memory_order_relaxed);
  }
  uint64_t calls() const {
    return calls_.load(std::memory_order_relaxed);
  }
  uint64_t elements() const {
    return elements_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> goes_on_{false};
  std::atomic<uint64_t> stream_{0}; // a hash of its calls
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> elements_{0};
  uint64_t first_ = 0;
  uint64_t kind_ = 0;
  size_t most_ = 0;
  bool exhausted_ = false;
};

// The streams that begin with one kind of call, as they have come by uncompiled: whether the next
// one is worth recording. That is so once the same one has come by often enough in a row, or where
// a few take turns. A sequence that grows never comes by again, and is never recorded.
class Sightings {
 public:
  bool returns(uint64_t first) const {
    return std::any_of(seen_.begin(), seen_.end(), [&](const Seen& one) {
      return one.first == first && one.times >= one.needed &&
          (one.stream == last_ || again_ > seen_.size());
    });
  }
  // One has ended that ran uncompiled.
  void ends(const Sighting& sighting, uint32_t least) {
    last_ = sighting.stream();
    auto found = std::find_if(
        seen_.begin(), seen_.end(), [&](const Seen& one) { return one.stream == last_; });
    if (found != seen_.end()) {
      again_ = ++found->times > found->needed ? again_ + 1 : 0;
      return;
    }
    again_ = 0;
    if (seen_.size() == kMost) {
      seen_.erase(seen_.begin());
    }
    seen_.push_back({sighting.first(), last_, 1, needed(sighting, least)});
  }

 private:
  struct Seen {
    uint64_t first, stream;
    uint32_t times, needed;
  };
  static constexpr size_t kMost = 12; // streams, as many as the start of a trace has shapes
  static constexpr uint64_t kMuch = 1'000'000; // elements a call
  static constexpr uint32_t kPatience = 16;

  // A call of few elements takes as long compiled as not: compiling it pays late.
  static uint32_t needed(const Sighting& sighting, uint32_t least) {
    const uint64_t mean = sighting.elements() / std::max<uint64_t>(sighting.calls(), 1);
    const uint64_t times = kMuch / std::max<uint64_t>(mean, 1);
    return static_cast<uint32_t>(std::clamp<uint64_t>(times, least, uint64_t{kPatience} * least));
  }

  uint64_t last_ = 0;
  size_t again_ = 0; // streams in a row that had come by often enough before
  std::vector<Seen> seen_;
};

} // namespace fuse
