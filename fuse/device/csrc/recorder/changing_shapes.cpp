// Places of a stream whose shapes keep changing: which calls run uncompiled there.
#include "recorder/recorder.h"

namespace fuse {

HostRun Recorder::runs_uncompiled(
    TrieNode* node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments) {
  const bool ragged = node == nullptr
      ? storms()
      : (open_->cursor->capped && among_storms()) || always_ends_ragged(*node);
  if (ragged) {
    return HostRun::Ragged;
  }
  refusal_.clear();
  if (begins_sighting(node, op, info)) {
    return HostRun::Sight;
  }
  return node != nullptr && begins_brief(*node, info, arguments) ? HostRun::Brief
                                                                 : HostRun::Fallback;
}

bool Recorder::storms() {
  // A place that has seen many shapes will see more. On the CPU the call then runs through
  // PyTorch's own kernels on the same memory, at their speed, and compiles nothing.
  if (!caps_shapes()) {
    return false;
  }
  // The start of a trace is where unrelated programs begin: it counts for less as one place.
  const uint32_t cap = open_->cursor->parent == nullptr ? shape_cap_ + shape_cap_ / 2 : shape_cap_;
  auto seen = open_->cursor->shapes.find(call_.rank_hash);
  if (seen == open_->cursor->shapes.end() || seen->second.shapes < cap) {
    return false;
  }
  refusal_.clear();
  if (!seen->second.capped) {
    refusal_ =
        "more than " + std::to_string(cap) + " shapes or constants at one place"; // said once
    seen->second.capped = open_->cursor->capped = true;
  }
  seen->second.meets_unknown();
  return true;
}

bool Recorder::among_storms() {
  if (!caps_shapes()) {
    return false;
  }
  auto seen = open_->cursor->shapes.find(call_.rank_hash);
  refusal_.clear();
  return seen != open_->cursor->shapes.end() && seen->second.capped && seen->second.meets_known();
}

bool Recorder::always_ends_ragged(TrieNode& node) {
  // Not what makes memory, which may live long and would keep its readers uncompiled; nor what
  // draws random numbers, which takes an executable anyway.
  if (open_->operations != 0 || !caps_shapes() || call_.operands.empty() || !node.writes.empty() ||
      node.random_blocks != 0) {
    return false;
  }
  refusal_.clear();
  return node.ragged_end.rests();
}

} // namespace fuse
