// Where streams meet: what one records and another reads, overwrites, or learns. A buffer notes its
// place in one open trace; a trace that has read it too keeps the place aside, so that streams that
// read the same weights do not cut each other. What is computed from such a value is right
// whatever the other stream does: a trace holds the arrays that it read.
#include <torch/csrc/Exceptions.h>

#include <exception>

#include "recorder/recorder.h"

namespace fuse {

namespace {

// The trace knows the buffer no more.
void forget_place(OpenTrace& trace, Buffer& buffer, OpenTrace::Place place) {
  Buffer*& owner = trace.owner[static_cast<size_t>(place.value)];
  if (owner == &buffer) {
    owner = nullptr;
    buffer.let_go();
  }
  if (place.leaf >= 0) {
    trace.leaves[static_cast<size_t>(place.leaf)].buffer = nullptr;
  }
}

// Words of a call's among those of its trace.
size_t words_of(const TrieNode& node, size_t places) {
  size_t words = 0;
  for (size_t at = 0; at < places; ++at) {
    words += node.scalars[at].dynamic ? 1 : 0;
  }
  return words;
}

// What holds the mutex records on another stream, for as long as this lives.
class OnStream {
 public:
  OnStream(OpenTrace*& open, OpenTrace& stream) : open_(open), before_(open) {
    open_ = &stream;
  }
  ~OnStream() {
    open_ = before_;
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  OpenTrace*& open_;
  OpenTrace* before_;
};

} // namespace

void Recorder::begin_stream() {
  open_->cursor = root_.get();
  open_->serial = ++serials_;
  open_->place = {};
  for (OpenTrace* trace : Streams::global().all()) {
    if (trace->state.load(std::memory_order_acquire) != OpenTrace::State::Left) {
      continue;
    }
    if (trace->cursor != nullptr) {
      try {
        cut_stream(*trace, CutReason::OtherStream);
      } catch (const std::exception&) {
        if (trace->operations != 0) {
          throw; // an interrupt: the trace stays
        }
        // It failed: who reads what it was to make is told why.
      }
      trace->capture.reset();
      trace->mark_at = 0;
    }
    trace->state.store(OpenTrace::State::Free, std::memory_order_release);
  }
}

void Recorder::cut_stream(OpenTrace& stream, CutReason reason) {
  const OnStream other(open_, stream);
  cut_locked(reason);
}

void Recorder::cut_every(CutReason reason) {
  std::exception_ptr failed;
  for (OpenTrace* trace : Streams::global().all()) {
    if (trace->cursor == nullptr) {
      continue;
    }
    try {
      cut_stream(*trace, reason);
    } catch (const std::exception&) {
      if (trace->operations != 0) {
        throw; // an interrupt: the trace stays, and so do those after it
      }
      failed = failed ? failed : std::current_exception();
    }
  }
  if (failed) {
    std::rethrow_exception(failed);
  }
}

bool Recorder::finds_elsewhere(Buffer& buffer) {
  OpenTrace* other = buffer.stream;
  if (other != nullptr && other->holds(buffer)) {
    if (buffer.pending) {
      cut_stream(*other, CutReason::OtherStream);
    } else {
      other->aside[&buffer] = {buffer.value, buffer.leaf};
      buffer.trace = 0;
    }
  }
  if (open_->aside.empty()) {
    return false;
  }
  auto found = open_->aside.find(&buffer);
  if (found == open_->aside.end()) {
    return false;
  }
  buffer.stream = open_;
  buffer.trace = open_->serial;
  buffer.value = found->second.value;
  buffer.leaf = found->second.leaf;
  open_->aside.erase(found);
  return true;
}

void Recorder::leave_to(OpenTrace* stream, Buffer& buffer) {
  OpenTrace* noted = buffer.stream;
  if (noted != stream && noted != nullptr && noted->holds(buffer)) {
    forget_place(*noted, buffer, {buffer.value, buffer.leaf});
    buffer.trace = 0;
  }
  if (buffer.traces.load(std::memory_order_relaxed) == (stream == nullptr ? 0 : 1)) {
    return;
  }
  for (OpenTrace* trace : Streams::global().all()) {
    auto found = trace->aside.find(&buffer);
    if (trace != stream && found != trace->aside.end()) {
      forget_place(*trace, buffer, found->second);
      trace->aside.erase(found);
    }
  }
}

void Recorder::mark_open_traces() {
  for (const OpenTrace* trace : Streams::global().all()) {
    for (TrieNode* step = trace->cursor; step != nullptr; step = step->parent) {
      step->last_used = serials_;
    }
  }
}

void Recorder::vary_in_open_traces(const TrieNode& node, size_t place) {
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
