#include "tracing/captured_graph.h"

#include <algorithm>

namespace fuse {

bool CapturedGraph::admits(const std::vector<GraphInput>& inputs) const {
  return std::all_of(places.begin(), places.end(), [&](const Place& place) {
    return place.node->scalars[place.scalar].admits(inputs[place.input].bits);
  });
}

uint64_t CompiledGraph::hash(const TrieNode* from, const std::vector<uint64_t>& key) {
  return hash_words(key) ^ reinterpret_cast<uint64_t>(from);
}

const CapturedGraph* CompiledGraph::find(
    const TrieNode* from,
    const std::vector<uint64_t>& key,
    uint64_t epoch,
    const std::vector<GraphInput>& inputs) const {
  auto range = captured_.equal_range(hash(from, key));
  for (auto it = range.first; it != range.second; ++it) {
    const CapturedGraph& one = it->second;
    if (one.epoch == epoch && one.from == from && one.key == key && one.admits(inputs)) {
      return &one;
    }
  }
  return nullptr;
}

void CompiledGraph::add(CapturedGraph captured) {
  std::erase_if(captured_, [&](const auto& one) { return one.second.epoch != captured.epoch; });
  if (captured_.size() >= kMost) {
    captured_.clear();
  }
  const uint64_t at = hash(captured.from, captured.key);
  captured_.emplace(at, std::move(captured));
}

} // namespace fuse
