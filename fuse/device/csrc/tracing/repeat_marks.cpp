#include "tracing/repeat_marks.h"

#include "tiering/period.h"
#include "tracing/trie_node.h"

namespace fuse {

void learn_period(OpenTrace& trace, size_t limit) {
  std::vector<uint64_t> history;
  for (const TrieNode* step = trace.cursor; step->parent != nullptr; step = step->parent) {
    history.push_back(step->shape_hash);
  }
  if (const size_t period = tiering::period_of(history)) {
    trace.mark_at = period * tiering::periods_in_piece(period, limit);
  }
}

} // namespace fuse
