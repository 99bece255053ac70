// The trace builder: puts calls into open traces, and plans and runs traces that are cut.
#pragma once

#include <ATen/core/stack.h>

#include <atomic>
#include <string>

#include "tracing/call_encoder.h"
#include "tracing/plan_runner.h"
#include "tracing/recorder_stats.h"
#include "tracing/segment_tiers.h"
#include "tracing/shape_inference.h"
#include "tracing/speculation.h"
#include "tracing/trace_cutter.h"
#include "tracing/trie.h"

namespace fuse {

enum class Mode : uint8_t { Debug, Strict, Fused };

// What became of a call: it was recorded, or is to be run on the host, and why.
struct RecordOutcome {
  enum class As : uint8_t { Call, Fallback, Uncompiled } as = As::Call;
  std::string why; // of a fallback
};

// All under the recorder's mutex but for what is atomic.
class TraceBuilder final : public TraceCutter {
 public:
  // Records the call on top of `stack`, whose arguments are prepared.
  RecordOutcome record(
      OpenTrace& trace, const BoxedCall& call, torch::jit::Stack* stack, bool may_run_uncompiled);
  // The trace has come as far as the last of these calls; cuts it where that is due, else starts
  // what the calls are known to lead to.
  void advance(OpenTrace& trace, c10::ArrayRef<TrieNode*> steps);
  // Whether the trace was cut, for its length or the mode.
  bool cut_if_full(OpenTrace& trace);
  // Cuts the trace where its calls are another device's.
  void switch_device(OpenTrace& trace, int8_t device);

  void cut_trace(OpenTrace& trace, CutReason reason) override;
  // Makes the plan of what the trace holds, its executables with it, and runs nothing.
  void plan_trace(OpenTrace& trace);
  // The same of every stream's; the first error is raised once all have been.
  void cut_every(CutReason reason);
  // A stream's first trace begins; what threads that have ended recorded last is handed on.
  void begin_stream(OpenTrace& trace);
  // Drops every known stream.
  void forget();
  // The same where the next trace begins. Waits for nothing, and needs no mutex.
  void forget_soon() {
    forgets_soon_.store(true, std::memory_order_relaxed);
  }
  // Changes when plans that were made before must not be used any more.
  uint64_t generation() const {
    return forgotten_;
  }
  // What `forget_soon` asked for, where a trace begins.
  void forget_if_due(const OpenTrace& trace);

  std::atomic<Mode> mode{Mode::Fused};
  size_t limit = 16384; // operations of a trace
  size_t most_nodes = 500000; // of the trie: about 500 bytes each, and a Python description
  RecorderStats stats;
  Trie trie;
  SegmentTiers tiers{stats};

 private:
  // Whether the trace is a piece of a loop without an end of its own, and the next begins here.
  bool ends_piece(OpenTrace& trace, const CallKey& key) const;
  // The segment that begins here runs uncompiled; what the trace holds is run before it.
  void begin_uncompiled(OpenTrace& trace);
  TrieNode* find_child(const OpenTrace& trace, const CallKey& key, const BoxedCall& call);
  Refusal add_child(OpenTrace& trace, const CallKey& key, const BoxedCall& call, TrieNode*& node);
  PlanFor run_trace(OpenTrace& trace, CutReason reason);
  void begin_trace(OpenTrace& trace);

  std::atomic<bool> forgets_soon_{false};
  uint64_t serials_ = 0; // traces begun
  uint64_t forgotten_ = 0; // how often all known streams were
  CallEncoder encoder_{*this};
  ShapeInference inference_;
  Speculator speculator_{stats};
  PlanRunner plans_{speculator_};
};

} // namespace fuse
