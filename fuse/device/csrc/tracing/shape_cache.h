// The cache of shape inference.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "tracing/trie_node.h"

namespace fuse {

// What the metadata of a call decides about its node.
struct Inferred {
  std::vector<NewTensor> tensors;
  std::vector<Write> writes;
  std::vector<Resize> resizes;
  std::vector<Result> results;
};

// A cache of inferred metadata, by everything that inference looks at: keys are compared whole. A
// layer's calls come once a layer, and most meta kernels are Python: some 300 us a call against 1
// us here.
class ShapeCache {
 public:
  using Key = std::vector<uint64_t>;

  const Inferred* find(const Key& key) const {
    auto found = known_.find(key);
    return found == known_.end() ? nullptr : &found->second;
  }
  void add(Key key, Inferred inferred) {
    if (known_.size() >= kMost) {
      known_.clear(); // what is still in use comes back at the cost of one inference
    }
    known_.emplace(std::move(key), std::move(inferred));
  }

 private:
  static constexpr size_t kMost = 16384; // about 500 bytes each
  struct Hash {
    size_t operator()(const Key& key) const {
      return hash_words(key);
    }
  };
  std::unordered_map<Key, Inferred, Hash> known_;
};

} // namespace fuse
