// The recorder: records the stream of operations into traces, and cuts them.
#pragma once

#include <ATen/core/stack.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tracing/captured_graph.h"
#include "tracing/operand_summary.h"
#include "tracing/record_only.h"
#include "tracing/stream_graph.h"
#include "tracing/streams.h"
#include "tracing/trace_builder.h"

namespace fuse {

// How far a stream has come: which trace it is recording, and its calls so far.
struct Position {
  OpenTrace* stream = nullptr;
  uint64_t trace = 0;
  size_t operations = 0;
};

// The facade of the core's tracing: its one mutex guards every open trace, the trie and the policy
// of tiers, in each of these calls. Never waited for with the GIL held.
class Recorder final {
 public:
  static Recorder& global();
  // Whether the calling thread is in one of its calls.
  static bool is_here();

  // Records the call on top of `stack`, whose arguments are prepared.
  RecordOutcome record(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
  // Whether a call of the calling thread's stream goes on its uncompiled segment: it is recorded
  // alone where the CPU does not compute it, or where the segment is too long.
  bool continues_uncompiled(const BoxedCall& call, bool whole = false);
  // The same of one that has not been boxed; its operands are plain. None for most calls, after one
  // flag.
  bool continues_uncompiled(const OpInfo& info, const OperandSummary& operands, bool whole = false);
  // The host reads a value, be it there already or not: what runs uncompiled ends, and what is
  // captured cannot be replayed, for the program may go on as the value says.
  void begin_read();

  // Hands on what the calling thread's stream has recorded. No effect where nothing is recorded.
  void cut(CutReason reason);
  // The same of every stream; the first error is raised once all have been.
  void cut_all(CutReason reason);
  Position position(OpenTrace& stream);
  // Hands on what a stream had recorded there, if it has not been.
  void cut_at(const Position& position, CutReason reason);
  // The concrete array of a buffer, after a cut if its value is pending.
  Array materialise(Buffer* buffer, CutReason reason);
  // Replaces the buffer's value by a concrete one.
  void assign(Buffer* buffer, Array array, uint32_t layout);
  // Lets go of the buffer's value: its storage has no bytes any more.
  void discard(Buffer& buffer);

  // Graphs of torch.compile. Records one whose calls are known at once; one that waits for its
  // executables is to be followed by its calls, and end_uncompiled.
  Replay replay(
      const CompiledGraph& graph,
      const std::vector<GraphInput>& inputs,
      std::vector<GraphOutput>& outputs);
  void end_uncompiled();
  // The calls that this thread makes until end_capture are the graph's; false where they are to be
  // made without one.
  bool begin_capture(const CompiledGraph& graph, const std::vector<GraphInput>& inputs);
  // Keeps them for replay; why that cannot be, else nothing. Without a graph the capture is
  // dropped.
  std::string end_capture(
      CompiledGraph* graph,
      const std::vector<GraphInput>& inputs,
      const std::vector<GraphOutput>& outputs);

  // Graphs of streams. From here on the calling thread's stream captures what it records.
  void begin_graph(std::shared_ptr<StreamGraph> graph);
  // The capture ends; throws why it is none.
  void end_graph(StreamGraph& graph);
  // Throws that a graph which the calling thread's stream captures cannot hold this; nothing where
  // it captures none.
  void refuse_in_graph(const std::string& what);
  // Runs what has been captured, after what the calling thread's stream has recorded.
  void run_graph(const std::shared_ptr<StreamGraph>& graph);

  Mode mode() const {
    return builder_.mode.load(std::memory_order_relaxed);
  }
  void set_mode(Mode mode);
  // Whether the next known stream of more than this many operations is cut.
  void set_limit(size_t operations);
  // How many calls the trie of known streams may hold.
  void set_most_nodes(size_t nodes);
  // See SegmentTiers.
  void set_tier(tiering::Setting setting);
  std::vector<TierReport> tiers();
  std::vector<RanSegment> watch(tiering::Watch watch);
  bool is_settled();
  RecorderStats stats();
  void reset_stats();
  // Drops every known stream.
  void forget();
  // The same where the next trace begins. Waits for nothing: whoever compiles beside calls it.
  void forget_soon() {
    builder_.forget_soon();
  }
  // Returns once no other thread is inside the recorder, or a moment later, in which threads come
  // to their next call and stop there; after some seconds in any case.
  void wait_until_left();

 private:
  class Lock;

  bool may_run_uncompiled() const {
    return mode() == Mode::Fused && !RecordOnly::here();
  }
  // Counts a call of an uncompiled segment; ends the segment, and is false, after too many.
  bool goes_on(const OpInfo& info, const OperandSummary& operands, bool whole);

  std::mutex mutex_;
  std::atomic<uint64_t> uncompiled_{0}; // calls, with and without the mutex
  TraceBuilder builder_;
};

} // namespace fuse
