#include "tracing/trie.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace fuse {

namespace {

constexpr size_t kLinearChildren = 8; // beyond this many children a hash index is kept

} // namespace

uint64_t hash_words(c10::ArrayRef<uint64_t> words) {
  uint64_t hash = words.size();
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull; // Fibonacci hashing; keys are compared whole
    hash ^= hash >> 29;
  }
  return hash;
}

TrieNode* Trie::find(
    const TrieNode& parent, const CallKey& key, c10::SmallVectorImpl<TrieNode*>& close) {
  const c10::ArrayRef<uint64_t> words = key.words;
  auto matches = [&](TrieNode& child) {
    if (child.words.size() != words.size() ||
        std::memcmp(child.words.data(), words.data(), words.size() * sizeof(uint64_t)) != 0) {
      return false;
    }
    for (size_t at = 0; at < key.scalars.size(); ++at) {
      if (!child.scalars[at].admits(key.scalars[at].bits)) {
        close.push_back(&child);
        return false;
      }
    }
    return true;
  };
  if (parent.index.empty()) {
    for (const auto& child : parent.children) {
      if (matches(*child)) {
        return child.get();
      }
    }
  } else {
    auto range = parent.index.equal_range(hash_words(words));
    for (auto it = range.first; it != range.second; ++it) {
      if (matches(*it->second)) {
        return it->second;
      }
    }
  }
  return nullptr;
}

std::unique_ptr<TrieNode> Trie::make_node(
    TrieNode& parent, const CallKey& key, const OpInfo& info) {
  auto node = std::make_unique<TrieNode>();
  node->parent = &parent;
  node->op = &info;
  node->words.assign(key.words.begin(), key.words.end());
  node->shape_hash = key.shape_hash;
  for (const ScalarBits& scalar : key.scalars) {
    ScalarPlace& place = node->scalars.emplace_back();
    place.bits = scalar.bits;
    place.kind = scalar.kind;
  }
  return node;
}

TrieNode& Trie::add(TrieNode& parent, std::unique_ptr<TrieNode> node) {
  TrieNode& added = *node;
  parent.children.push_back(std::move(node));
  ++size_;
  add_to_index(parent);
  return added;
}

void Trie::add_to_index(TrieNode& parent) {
  if (parent.children.size() < kLinearChildren) {
    return;
  }
  if (parent.index.empty()) {
    for (auto& child : parent.children) {
      parent.index.emplace(hash_words(child->words), child.get());
    }
  } else {
    TrieNode* last = parent.children.back().get();
    parent.index.emplace(hash_words(last->words), last);
  }
}

void Trie::prune(size_t most) {
  ++epoch_;
  // A compiled graph marks the last of its calls alone: those before it are in use as well.
  root_->for_each([](TrieNode& node) {
    for (TrieNode* step = node.parent; step != nullptr && step->last_used < node.last_used;
         step = step->parent) {
      step->last_used = node.last_used;
    }
  });
  std::vector<uint64_t> used;
  root_->for_each([&](TrieNode& node) { used.push_back(node.last_used); });
  const auto edge = used.begin() + static_cast<ptrdiff_t>(most);
  std::nth_element(used.begin(), edge, used.end(), std::greater<>());
  size_ = 0;
  root_->for_each([&, oldest = *edge](TrieNode& node) {
    if (node.forget_before(oldest)) {
      node.index.clear();
      add_to_index(node);
    }
    size_ += node.children.size();
  });
}

void Trie::forget() {
  root_ = std::make_unique<TrieNode>();
  ++epoch_;
  size_ = 0;
}

} // namespace fuse
