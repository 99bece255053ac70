#include "cpu_exec/host_permutation.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "cpu_exec/host_philox.h"

namespace fuse {

namespace {

constexpr uint64_t kPosition =
    0xFFFFFFFF; // of a key: the low half of an entry; the high is its own

// The entries that `entry` says, in the order of some of their bits, and else in their own.
template <typename Entry>
void spread(size_t count, const Entry& entry, int shift, int bits, uint64_t* found) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  std::vector<uint32_t> places(mask + 1);
  for (size_t at = 0; at < count; ++at) {
    ++places[entry(at) >> shift & mask];
  }
  std::exclusive_scan(places.begin(), places.end(), places.begin(), uint32_t{0});
  for (size_t at = 0; at < count; ++at) {
    const uint64_t one = entry(at);
    found[places[one >> shift & mask]++] = one;
  }
}

// By insertion, of entries that are all but in order already.
template <typename Less>
void settle(uint64_t* entries, size_t count, const Less& less) {
  for (size_t at = 1; at < count; ++at) {
    const uint64_t entry = entries[at];
    size_t place = at;
    for (; place > 0 && less(entry, entries[place - 1]); --place) {
      entries[place] = entries[place - 1];
    }
    entries[place] = entry;
  }
}

} // namespace

// In a time that grows as the count: keys are uniform, so that in the order of their highest bits,
// two to four more than the count has, few are out of order.
at::Tensor permutation(const RandomDraw& from, int64_t count) {
  const at::Tensor drawn =
      draw_each<uint64_t, uint64_t>(from, count, [](uint64_t bits) { return bits; });
  const auto* const keys = drawn.const_data_ptr<uint64_t>();
  const auto size = static_cast<size_t>(count);
  const int half = std::min((static_cast<int>(std::bit_width(size)) + 4) / 2, 16);
  at::Tensor found = at::empty({count}, at::kLong);
  auto* const entries = reinterpret_cast<uint64_t*>(found.mutable_data_ptr<int64_t>());
  const at::Tensor between = at::empty({count}, at::kUInt64);
  auto* const halfway = between.mutable_data_ptr<uint64_t>();
  const auto first = [keys](size_t at) { return (keys[at] & ~kPosition) | at; };
  const auto second = [halfway](size_t at) { return halfway[at]; };
  spread(size, first, 64 - 2 * half, half, halfway);
  spread(size, second, 64 - half, half, entries);
  settle(entries, size, [keys](uint64_t one, uint64_t other) {
    return (one ^ other) > kPosition ? one < other
                                     : keys[one & kPosition] < keys[other & kPosition];
  });
  std::for_each_n(entries, size, [](uint64_t& entry) { entry &= kPosition; });
  return found;
}

} // namespace fuse
