// Brief traces: a few calls on little memory, and a read of what they make. On the CPU handing one
// to XLA's threads and waiting for them takes longer than the calls themselves, on PyTorch's own
// kernels and the same memory. So where the traces that begin with a call have been brief, the
// next ones run uncompiled. What they make is as good as compiled: who reads it is recorded.
#include <ATen/core/dispatch/Dispatcher.h>

#include "recorder/recorder.h"
#include "recorder/tensors_in.h"

namespace fuse {

namespace {

constexpr size_t kMostLive = 8; // values: more are kept for a backward pass, which is recorded
constexpr size_t kMostMade = 1 << 16; // bytes of one result: some 5 us of an elementwise kernel
constexpr size_t kMostRead = 1 << 19; // bytes behind one operand: weights of 128 thousand numbers

bool makes_little(const TrieNode& node) {
  for (const NewTensor& made : node.tensors) {
    if (made.nbytes > kMostMade) {
      return false;
    }
  }
  for (const Write& write : node.writes) {
    if (bytes_in(write.layout) > kMostMade) {
      return false;
    }
  }
  return node.random_blocks == 0;
}

bool reads_little(const at::Tensor& tensor, bool written) {
  return !tensor.defined() || !tensor.is_privateuseone() ||
      Buffer::of(tensor)->nbytes <= (written ? kMostMade : kMostRead);
}

bool reads_little(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  bool little = true;
  for (size_t at = 0; little && at < arguments.size(); ++at) {
    for_tensors(arguments[at], [&](const at::Tensor& tensor) {
      little = little && reads_little(tensor, info.written[at]);
    });
  }
  return little;
}

} // namespace

bool Recorder::is_brief(CutReason reason, size_t live) const {
  if (reason != CutReason::HostRead || open_->operations > brief_calls_ || live > kMostLive) {
    return false;
  }
  for (const Leaf& leaf : open_->leaves) {
    if (bytes_in(leaf.layout) > kMostRead) {
      return false;
    }
  }
  for (const TrieNode* step = open_->cursor; step->parent != nullptr; step = step->parent) {
    if (!makes_little(*step)) {
      return false;
    }
  }
  return true;
}

bool Recorder::runs_briefly(const c10::OperatorHandle& op) {
  return op.schema().getNamespace() == "aten" && // others' kernels may be programs, too
      !op.hasTag(at::Tag::nondeterministic_seeded) &&
      op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

bool Recorder::begins_brief(
    TrieNode& node, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (open_->operations != 0 || brief_calls_ == 0 || !node.brief_end.expected() ||
      !may_be_brief(info) || !reads_little(info, arguments)) {
    return false;
  }
  open_->brief_left.store(static_cast<int64_t>(brief_calls_) - 1, std::memory_order_relaxed);
  open_->brief.store(&node, std::memory_order_relaxed);
  return true;
}

bool Recorder::goes_on_briefly(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  return follows_brief() && goes_on_briefly(may_be_brief(info) && reads_little(info, arguments));
}

bool Recorder::goes_on_briefly(bool may) {
  OpenTrace* here = Streams::here_if_any(); // a brief trace has begun on it
  if (may && here->brief_left.fetch_sub(1, std::memory_order_relaxed) > 0) {
    return true;
  }
  give_up_brief();
  return false;
}

std::optional<HostRun> Recorder::runs_unboxed(const OpInfo& info, const UnboxedOperands& operands) {
  // None for most calls, after two flags. What is not plain is left to boxed calls.
  const bool ragged = operands.ragged() && may_run_uncompiled();
  const bool sighted = follows_sighting() && may_run_uncompiled();
  if (!operands.plain() || !(ragged || sighted || follows_brief())) {
    return std::nullopt;
  }
  check_process();
  if (!ragged && sighted && !goes_on_sighting(info, operands)) {
    return std::nullopt;
  }
  if (!ragged && !sighted &&
      !goes_on_briefly(may_be_brief(info) && operands.most_bytes() <= kMostRead)) {
    return std::nullopt;
  }
  uncompiled_.fetch_add(1, std::memory_order_relaxed);
  return ragged ? HostRun::Ragged : sighted ? HostRun::Sight : HostRun::Brief;
}

void Recorder::drop_brief() {
  if (TrieNode* node = open_->brief.exchange(nullptr, std::memory_order_relaxed)) {
    node->brief_end.went_on();
  }
}

} // namespace fuse
