#include "tiering/segment.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "tiering/period.h"

namespace fuse::tiering {

namespace {

struct Mark {
  uint64_t call = 0;
  size_t times = 0; // that it comes in a period
};

// The call of a period that pieces of the loop are to begin with: the rarest, so that it is told
// from others where it is recorded too, and none that is several calls there; the oldest of those.
Mark mark_of(const std::vector<uint64_t>& newest_first, size_t period, uint64_t whole) {
  std::unordered_map<uint64_t, size_t> times;
  for (size_t at = 0; at < period; ++at) {
    ++times[newest_first[at]];
  }
  Mark best;
  for (size_t at = period; at-- > 0;) {
    const uint64_t call = newest_first[at];
    const bool parts = (call & whole) != 0, best_parts = (best.call & whole) != 0;
    if (best.times == 0 || parts < best_parts ||
        (parts == best_parts && times[call] < best.times)) {
      best = {call, times[call]};
    }
  }
  return best;
}

} // namespace

void Segment::begin(size_t most) {
  if (history_ == nullptr) {
    history_ = std::make_unique<std::atomic<uint64_t>[]>(kRemembered);
  }
  limit_ = most;
  most_.store(most, std::memory_order_relaxed);
  for (auto* sum : {&stream_, &calls_}) {
    sum->store(0, std::memory_order_relaxed);
  }
  seen_.store(0, std::memory_order_relaxed);
  goes_on_.store(true, std::memory_order_relaxed);
}

bool Segment::finds_loop(uint64_t calls) {
  const bool looked = calls > limit_;
  forget_loop();
  if (looked) {
    return false; // the mark has not come
  }
  std::vector<uint64_t> newest_first(std::min<size_t>(calls, kRemembered));
  for (size_t at = 0; at < newest_first.size(); ++at) {
    newest_first[at] = history_[(calls - 1 - at) % kRemembered].load(std::memory_order_relaxed);
  }
  const size_t period = period_of(newest_first);
  if (period == 0) {
    return false;
  }
  const Mark mark = mark_of(newest_first, period, kWhole);
  const auto again = static_cast<uint32_t>(mark.times * periods_in_piece(period, limit_));
  again_.store(again, std::memory_order_relaxed);
  seen_.store(again - 1, std::memory_order_relaxed); // the next one ends this segment
  mark_.store(mark.call, std::memory_order_relaxed);
  most_.store(calls + period, std::memory_order_relaxed);
  return true;
}

} // namespace fuse::tiering
