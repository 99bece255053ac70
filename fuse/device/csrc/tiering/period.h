// The period of a loop that has no end of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fuse::tiering {

// Calls that a piece of such a loop should hold at least: one executable's.
constexpr size_t kPiece = 512;

// The smallest period of what came last, by hashes of calls, the newest first; 0 if there is none.
inline size_t period_of(const std::vector<uint64_t>& newest_first) {
  const auto begin = newest_first.begin();
  for (size_t period = 1; period <= newest_first.size() / 2; ++period) {
    const size_t length = std::min(newest_first.size() - period, std::max(2 * period, kPiece));
    if (std::equal(
            begin,
            begin + static_cast<ptrdiff_t>(length),
            begin + static_cast<ptrdiff_t>(period))) {
      return period;
    }
  }
  return 0;
}

// How many periods a piece holds, of at most `limit` calls.
inline size_t periods_in_piece(size_t period, size_t limit) {
  const size_t piece = std::min(kPiece, limit / 2);
  return std::max<size_t>(1, (piece + period - 1) / period);
}

} // namespace fuse::tiering
