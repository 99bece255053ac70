// Samples: recent times of one kind, and what is typical of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace fuse::tiering {

using Nanoseconds = int64_t;

// The last few times of what comes by again and again.
class Samples {
 public:
  static constexpr size_t kEnough = 3;

  void add(Nanoseconds time) {
    times_[added_++ % kMost] = time;
  }
  bool enough() const {
    return added_ >= kEnough;
  }
  // Their mean, outliers counting as four medians: a pause for something else is nobody's time.
  Nanoseconds typical() const {
    const size_t count = std::min(added_, kMost);
    if (count == 0) {
      return 0;
    }
    std::array<Nanoseconds, kMost> sorted = times_;
    std::sort(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(count));
    const Nanoseconds most = 4 * sorted[count / 2];
    Nanoseconds sum = 0;
    for (size_t at = 0; at < count; ++at) {
      sum += std::min(sorted[at], most);
    }
    return sum / static_cast<Nanoseconds>(count);
  }
  void clear() {
    added_ = 0;
  }

 private:
  static constexpr size_t kMost = 8;
  std::array<Nanoseconds, kMost> times_{};
  size_t added_ = 0;
};

} // namespace fuse::tiering
