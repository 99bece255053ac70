#include "tracing/shared_buffers.h"

#include "runtime/deferred_frees.h"
#include "tracing/streams.h"
#include "tracing/trie_node.h"

namespace fuse {

namespace {

// Words of a call's among those of its trace.
size_t words_of(const TrieNode& node, size_t places) {
  size_t words = 0;
  for (size_t at = 0; at < places; ++at) {
    words += node.scalars[at].dynamic ? 1 : 0;
  }
  return words;
}

} // namespace

bool finds_elsewhere(OpenTrace& trace, Buffer& buffer, TraceCutter& cutter) {
  OpenTrace* other = buffer.stream;
  if (other != nullptr && other->holds(buffer)) {
    if (buffer.pending) {
      cutter.cut_trace(*other, CutReason::OtherStream);
    } else {
      other->aside[&buffer] = {buffer.value, buffer.leaf};
      buffer.trace = 0;
    }
  }
  if (trace.aside.empty()) {
    return false;
  }
  auto found = trace.aside.find(&buffer);
  if (found == trace.aside.end()) {
    return false;
  }
  buffer.stream = &trace;
  buffer.trace = trace.serial;
  buffer.value = found->second.value;
  buffer.leaf = found->second.leaf;
  trace.aside.erase(found);
  return true;
}

void leave_to(OpenTrace* stream, Buffer& buffer) {
  OpenTrace* noted = buffer.stream;
  if (noted != stream && noted != nullptr && noted->holds(buffer)) {
    noted->forget(buffer, {buffer.value, buffer.leaf});
    buffer.trace = 0;
  }
  if (!buffer.is_in_more_than(stream == nullptr ? 0 : 1)) {
    return;
  }
  for (OpenTrace* trace : Streams::global().all()) {
    auto found = trace->aside.find(&buffer);
    if (trace != stream && found != trace->aside.end()) {
      trace->forget(buffer, found->second);
      trace->aside.erase(found);
    }
  }
}

void free_dead_buffers() {
  for (Buffer* buffer : DeferredFrees::global().take()) {
    leave_to(nullptr, *buffer);
    delete buffer; // a leaf's array stays alive in the trace
  }
}

void mark_open_traces(uint64_t serial) {
  for (const OpenTrace* trace : Streams::global().all()) {
    for (TrieNode* step = trace->cursor; step != nullptr; step = step->parent) {
      step->last_used = serial;
    }
  }
}

void vary_in_open_traces(const TrieNode& node, size_t place) {
  // They have met the only value that the place has had, and now pass it like any other.
  for (OpenTrace* trace : Streams::global().all()) {
    bool passes = false;
    size_t before = words_of(node, place);
    for (const TrieNode* step = trace->cursor; step != nullptr; step = step->parent) {
      if (passes) {
        before += words_of(*step, step->scalars.size()) + (step->random_blocks != 0 ? 2 : 0);
      }
      passes = passes || step == &node;
    }
    if (passes) {
      trace->dynamic.insert(
          trace->dynamic.begin() + static_cast<ptrdiff_t>(before), node.scalars[place].bits);
    }
  }
}

} // namespace fuse
