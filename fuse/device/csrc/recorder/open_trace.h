// What one stream is recording.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "device/buffer.h"
#include "device/python_bridge.h"
#include "recorder/compiled.h"
#include "tiering/policy.h"
#include "tiering/segment.h"

namespace fuse {

struct TrieNode;

// A value from before the trace. Undefined memory has a place here too, without an array,
// so that a failed trace can give every buffer back what it had.
struct Leaf {
  int32_t value;
  Array array;
  Buffer* buffer; // null once it has died, or another stream has overwritten it
  uint32_t layout;
};

// What runs already of the trace being recorded: pure work, dropped if the trace ends otherwise.
struct Started {
  TrieNode* at = nullptr; // where it began
  PyRef handle; // of the plan
  PyRef state;
};

// The trace that a stream has open, and where on the trie it is. Every thread has a stream of its
// own, and makes more: see Streams. All fields but the atomic ones change under the recorder's
// mutex; one that has been made is never deleted, so that a buffer may point at it.
struct OpenTrace {
  // Whose stream it is: a thread's or the pool's, one's that has ended, or nobody's, with
  // nothing recorded.
  enum class State : uint8_t { Used, Left, Free };
  // Where a buffer is in the trace while it notes its place in another: see Recorder::finds.
  struct Place {
    int32_t value, leaf;
  };

  // Whether what `buffer` notes is its place in this trace.
  bool holds(const Buffer& buffer) const {
    return buffer.trace == serial;
  }

  std::atomic<int64_t> id{0}; // of the stream, as PyTorch knows it
  std::atomic<State> state{State::Used};
  TrieNode* cursor = nullptr; // null until something is recorded
  TrieNode* first = nullptr; // where the trace began, if it has
  uint64_t serial = 0; // of all streams' traces; another one after every cut
  size_t operations = 0;
  int8_t device = 0;
  size_t mark_at = 0; // depth at which the current trace is to be marked, 0: nowhere
  std::vector<Buffer*> owner; // by value number; null once nobody can see the value
  std::vector<Leaf> leaves;
  std::vector<uint64_t> dynamic;
  std::unordered_map<const Buffer*, Place> aside; // leaves that another stream reads as well
  Started started;
  std::unique_ptr<Capture> capture;
  bool joins = false; // the trace holds a graph that others are to join
  tiering::Segment segment;
  tiering::Place place;
};

} // namespace fuse
