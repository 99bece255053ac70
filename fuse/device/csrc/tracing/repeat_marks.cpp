#include "tracing/repeat_marks.h"

#include <algorithm>

#include "tracing/trie_node.h"

namespace fuse {

void learn_period(OpenTrace& trace, size_t limit) {
  std::vector<uint64_t> history;
  for (const TrieNode* step = trace.cursor; step->parent != nullptr; step = step->parent) {
    history.push_back(step->shape_hash);
  }
  constexpr size_t kChunk = 512; // operations a marked trace should hold at least
  const size_t window = history.size() / 2;
  for (size_t period = 1; period <= window; ++period) {
    const size_t length = std::min(history.size() - period, std::max(2 * period, kChunk));
    if (std::equal(
            history.begin(),
            history.begin() + static_cast<ptrdiff_t>(length),
            history.begin() + static_cast<ptrdiff_t>(period))) {
      trace.mark_at = period * std::max<size_t>(1, (kChunk + period - 1) / period);
      if (trace.mark_at >= limit) {
        trace.mark_at = period;
      }
      return;
    }
  }
}

} // namespace fuse
