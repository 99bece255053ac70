// Open traces: what a stream has recorded since its last cut.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/python_bridge.h"
#include "tiering/policy.h"
#include "tiering/segment.h"
#include "tracing/captured_graph.h"

namespace fuse {

struct StreamGraph;
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
struct StartedPlan {
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
  // Where a buffer is in the trace while it notes its place in another: see shared_buffers.h.
  struct Place {
    int32_t value, leaf;
  };

  // The number of the stream, as PyTorch knows it.
  int64_t number() const {
    return id.load(std::memory_order_relaxed);
  }
  // Whether what `buffer` notes is its place in this trace.
  bool holds(const Buffer& buffer) const {
    return buffer.trace == serial;
  }
  int32_t next_value() const {
    return static_cast<int32_t>(owner.size());
  }
  // The buffer, met for the first time, becomes a leaf, whose value is this number.
  void meet(Buffer& buffer, int32_t value);
  // The last `count` buffers that were met are strangers again.
  void forget_met(uint32_t count);
  // A new buffer, whose value is a result of this trace.
  void make(Buffer& buffer, int32_t value);
  // The buffer's value is another result of this trace from now on.
  void write(Buffer& buffer, int32_t value, uint32_t layout);
  // The trace knows the buffer, which is at `place`, no more.
  void forget(Buffer& buffer, Place place);
  // Buffers that were to be overwritten have the values that they had before the trace.
  void give_leaves_back();
  // A new trace, from the trie's root on. What was started of the last one has been dropped.
  void begin(TrieNode& root, uint64_t next_serial);

  // The values that somebody can see once the trace has run, ascending.
  std::vector<int32_t> live_values() const;
  // The leaves that nobody but this trace holds, ascending: their memory may be reused.
  std::vector<int32_t> donatable_leaves() const;
  // Those that a trace has read before, ascending.
  std::vector<int32_t> read_leaves() const;

  // Says why what is captured cannot be replayed; the second only if this thread captures.
  void break_capture(const char* why) {
    if (capture != nullptr && capture->broken == nullptr) {
      capture->broken = why;
    }
  }
  void break_capture_here(const char* why) {
    if (capture != nullptr && capture->thread == std::this_thread::get_id()) {
      break_capture(why);
    }
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
  std::vector<uint64_t> dynamic; // numbers that vary, in order
  std::unordered_map<const Buffer*, Place> aside; // leaves that another stream reads as well
  StartedPlan started;
  std::unique_ptr<GraphCapture> capture;
  std::shared_ptr<StreamGraph> graph; // that the stream captures
  std::shared_ptr<StreamGraph> replayed; // whose calls the trace holds, on a trie of their own
  bool asked = false; // the policy of tiers, since the trace began or a compiled graph was called
  bool behind_graph = false; // what is to be asked about follows a compiled graph
  bool joins = false; // the trace holds a graph that others are to join
  tiering::Segment segment;
  uint64_t begins_with = 0; // a hash of the trace's first call and its shapes
  uint32_t came_again = 0; // how often that did, where the trace is a piece of a loop
  tiering::Place place;

 private:
  void own(Buffer& buffer, int32_t value);
};

} // namespace fuse
