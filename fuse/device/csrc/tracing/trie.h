// The trie of streams seen: one node a recorded call, one path a trace.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>

#include "tracing/call_key.h"
#include "tracing/trie_node.h"

namespace fuse {

class Trie {
 public:
  Trie() : root_(std::make_unique<TrieNode>()) {}

  TrieNode& root() {
    return *root_;
  }
  // Changes where calls are forgotten, or numbers of known ones begin to vary.
  uint64_t epoch() const {
    return epoch_;
  }
  void change() {
    ++epoch_;
  }
  size_t size() const {
    return size_;
  }
  // The child that the call leads to, none if there is none; `close` are those of the same
  // structure, where other numbers stand.
  static TrieNode* find(
      const TrieNode& parent, const CallKey& key, c10::SmallVectorImpl<TrieNode*>& close);
  // A child of `parent` that is not yet one: nothing is known of it but its key.
  static std::unique_ptr<TrieNode> make_node(
      TrieNode& parent, const CallKey& key, const OpInfo& info);
  TrieNode& add(TrieNode& parent, std::unique_ptr<TrieNode> node);
  // Forgets what no trace has come by for longest, until this many nodes are left.
  void prune(size_t most);
  void forget();

 private:
  static void add_to_index(TrieNode& parent);

  std::unique_ptr<TrieNode> root_;
  uint64_t epoch_ = 1;
  size_t size_ = 0;
};

} // namespace fuse
