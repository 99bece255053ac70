#include "tracing/open_trace.h"

#include "runtime/deferred_frees.h"
#include "tracing/shared_buffers.h"

namespace fuse {

void OpenTrace::own(Buffer& buffer, int32_t value) {
  buffer.value = value;
  if (value == next_value()) {
    owner.push_back(&buffer);
  } else {
    owner[static_cast<size_t>(value)] = &buffer;
  }
}

void OpenTrace::meet(Buffer& buffer, int32_t value) {
  buffer.stream = this;
  buffer.trace = serial;
  buffer.held();
  own(buffer, value);
  buffer.leaf = static_cast<int32_t>(leaves.size());
  leaves.push_back({value, buffer.array, &buffer, buffer.layout});
}

void OpenTrace::forget_met(uint32_t count) {
  for (uint32_t left = count; left > 0; --left) {
    Buffer* buffer = owner.back();
    owner.pop_back();
    leaves.pop_back();
    buffer->let_go();
    buffer->trace = 0;
    buffer->leaf = -1;
    buffer->value = -1;
  }
}

void OpenTrace::make(Buffer& buffer, int32_t value) {
  buffer.stream = this;
  buffer.trace = serial;
  buffer.leaf = -1;
  buffer.pending = true;
  buffer.held();
  own(buffer, value);
}

void OpenTrace::write(Buffer& buffer, int32_t value, uint32_t layout) {
  if (buffer.is_in_more_than(1)) {
    leave_to(this, buffer);
  }
  if (owner[static_cast<size_t>(buffer.value)] == &buffer) {
    owner[static_cast<size_t>(buffer.value)] = nullptr;
  }
  buffer.array.reset(); // a leaf's array lives on in the trace, for donation
  buffer.pending = true;
  buffer.layout = layout;
  own(buffer, value);
}

void OpenTrace::forget(Buffer& buffer, Place place) {
  Buffer*& holder = owner[static_cast<size_t>(place.value)];
  if (holder == &buffer) {
    holder = nullptr;
    buffer.let_go();
  }
  if (place.leaf >= 0) {
    leaves[static_cast<size_t>(place.leaf)].buffer = nullptr;
  }
}

void OpenTrace::give_leaves_back() {
  for (Leaf& leaf : leaves) {
    if (leaf.buffer != nullptr && leaf.buffer->pending) {
      leaf.buffer->array = leaf.array;
      leaf.buffer->layout = leaf.layout;
      leaf.buffer->pending = false;
    }
  }
}

void OpenTrace::begin(TrieNode& root, uint64_t next_serial) {
  {
    std::lock_guard<std::mutex> guard(DeferredFrees::global().mutex());
    for (Buffer* buffer : owner) {
      if (buffer != nullptr) {
        buffer->let_go(); // from here on it may be freed where it dies
      }
    }
  }
  serial = next_serial;
  asked = behind_graph = false;
  joins = false;
  cursor = &root;
  operations = 0;
  came_again = 0;
  owner.clear();
  aside.clear();
  leaves.clear();
  dynamic.clear();
  replayed.reset();
}

std::vector<int32_t> OpenTrace::live_values() const {
  std::vector<int32_t> live;
  for (size_t value = 0; value < owner.size(); ++value) {
    if (owner[value] != nullptr && owner[value]->pending) {
      live.push_back(static_cast<int32_t>(value));
    }
  }
  return live;
}

std::vector<int32_t> OpenTrace::donatable_leaves() const {
  std::vector<int32_t> found;
  for (const Leaf& leaf : leaves) {
    // Only this trace holds it: it has been overwritten, or its buffer has died.
    if (leaf.array.defined() && leaf.array.use_count() == 1 && !leaf.array->shared()) {
      found.push_back(leaf.value);
    }
  }
  return found;
}

std::vector<int32_t> OpenTrace::read_leaves() const {
  std::vector<int32_t> found;
  for (const Leaf& leaf : leaves) {
    if (leaf.array.defined() && leaf.array->read()) {
      found.push_back(leaf.value);
    }
  }
  return found;
}

} // namespace fuse
