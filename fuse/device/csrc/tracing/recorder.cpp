#include "tracing/recorder.h"

#include <chrono>
#include <thread>

#include "tracing/graph_recorder.h"
#include "tracing/lock.h"
#include "tracing/shared_buffers.h"
#include "tracing/stream_graph_recorder.h"
#include "tracing/tensors_in.h"

namespace fuse {

static void refuse_read(OpenTrace& trace, CutReason reason) {
  trace.break_capture_here("it reads a value on the host");
  refuse_in_graph(trace, reason);
}

Recorder& Recorder::global() {
  static auto* recorder = new Recorder; // buffers may die after static destruction
  return *recorder;
}

bool Recorder::is_here() {
  return Lock::held_here();
}

RecordOutcome Recorder::record(
    const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  Lock lock(*this);
  const BoxedCall call{op, info, torch::jit::last(*stack, info.kinds.size())};
  RecordOutcome outcome = builder_.record(lock.trace(), call, stack, may_run_uncompiled());
  uncompiled_.fetch_add(outcome.as == RecordOutcome::As::Uncompiled, std::memory_order_relaxed);
  if (outcome.as == RecordOutcome::As::Fallback) {
    fuse::refuse_in_graph(
        lock.trace(),
        "aten::" + call.info.name + " runs on the host" +
            (outcome.why.empty() ? "" : " (" + outcome.why + ")"));
  }
  return outcome;
}

// ---- uncompiled calls -------------------------------------------------------------------

bool Recorder::continues_uncompiled(const BoxedCall& call, bool whole) {
  if (!SegmentTiers::runs_uncompiled() || !may_run_uncompiled() ||
      !runs_on_cpu(call.op, call.info)) {
    return false;
  }
  OperandSummary operands;
  for (const c10::IValue& argument : call.arguments) {
    for_tensors(argument, [&](const at::Tensor& tensor) { operands.see(tensor); });
  }
  return goes_on(call.info, operands, whole);
}

bool Recorder::continues_uncompiled(
    const OpInfo& info, const OperandSummary& operands, bool whole) {
  if (!SegmentTiers::runs_uncompiled() || !operands.plain() || !may_run_uncompiled()) {
    return false;
  }
  check_process();
  return goes_on(info, operands, whole);
}

bool Recorder::goes_on(const OpInfo& info, const OperandSummary& operands, bool whole) {
  tiering::Segment& segment = Streams::here_if_any()->segment; // it has begun there
  if (segment.add(reinterpret_cast<uint64_t>(&info) ^ operands.hash(), whole)) {
    uncompiled_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  Lock lock(*this);
  builder_.tiers.end_piece(lock.trace());
  return false;
}

void Recorder::begin_read() {
  const OpenTrace* here = Streams::here_if_any();
  if (here != nullptr && (here->capture != nullptr || here->graph != nullptr)) [[unlikely]] {
    Lock lock(*this);
    refuse_read(lock.trace(), CutReason::HostRead);
  } else if (SegmentTiers::runs_uncompiled() && !RecordOnly::here()) {
    Lock lock(*this);
    builder_.tiers.end(lock.trace());
  }
}

// ---- cuts -------------------------------------------------------------------------------

void Recorder::cut(CutReason reason) {
  Lock lock(*this);
  if (lock.trace().graph != nullptr && reason == CutReason::OptimizerStep) {
    return; // what is captured is one trace
  }
  builder_.cut_trace(lock.trace(), reason);
}

void Recorder::cut_all(CutReason reason) {
  Lock lock(*this);
  fuse::refuse_in_graph(lock.trace(), reason);
  builder_.cut_every(reason);
}

Position Recorder::position(OpenTrace& stream) {
  Lock lock(*this);
  return {&stream, stream.serial, stream.operations};
}

void Recorder::cut_at(const Position& position, CutReason reason) {
  Lock lock(*this);
  if (position.operations != 0 && position.stream->serial == position.trace) {
    builder_.cut_trace(*position.stream, reason);
  }
}

// ---- values -----------------------------------------------------------------------------

Array Recorder::materialise(Buffer* buffer, CutReason reason) {
  Lock lock(*this);
  refuse_read(lock.trace(), reason);
  if (buffer->pending) {
    try {
      builder_.cut_trace(*buffer->stream, reason);
    } catch (const std::exception&) {
      if (buffer->pending || buffer->poison) {
        throw;
      } // else what failed was something else, which says so when it is read
    }
  }
  if (buffer->poison) {
    TORCH_CHECK(false, *buffer->poison);
  }
  return buffer->array;
}

namespace {

// No trace knows the buffer's value any more, nor why it was lost.
void forget_value(Buffer& buffer) {
  leave_to(nullptr, buffer);
  buffer.trace = 0;
  buffer.value = -1;
  buffer.leaf = -1;
  buffer.poison.reset();
}

} // namespace

void Recorder::assign(Buffer* buffer, Array array, uint32_t layout) {
  Lock lock(*this);
  lock.trace().break_capture_here("it writes a value on the host");
  fuse::refuse_in_graph(lock.trace(), "it writes a value that the host has");
  forget_value(*buffer);
  array->has(buffer->nbytes);
  buffer->array = std::move(array);
  buffer->layout = layout;
  buffer->pending = false; // last: who reads it without the lock reads the array next
}

void Recorder::discard(Buffer& buffer) {
  Lock lock(*this);
  if (buffer.graphs.load(std::memory_order_relaxed) != 0) {
    return; // a captured graph runs on it
  }
  forget_value(buffer);
  buffer.array = Array();
  buffer.pending = false;
}

// ---- graphs of torch.compile ------------------------------------------------------------

Replay Recorder::replay(
    const CompiledGraph& graph,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs) {
  Lock lock(*this);
  return fuse::replay(builder_, lock.trace(), graph, inputs, outputs);
}

void Recorder::end_uncompiled() {
  Lock lock(*this);
  fuse::end_uncompiled(builder_, lock.trace());
}

bool Recorder::begin_capture(const CompiledGraph& graph, const std::vector<GraphInput>& inputs) {
  Lock lock(*this);
  return fuse::begin_capture(builder_, lock.trace(), graph, inputs);
}

std::string Recorder::end_capture(
    CompiledGraph* graph,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs) {
  Lock lock(*this);
  return fuse::end_capture(builder_, lock.trace(), graph, inputs, outputs);
}

// ---- graphs of streams -----------------------------------------------------------------

void Recorder::begin_graph(std::shared_ptr<StreamGraph> graph) {
  Lock lock(*this);
  fuse::begin_graph(builder_, lock.trace(), std::move(graph));
}

void Recorder::end_graph(StreamGraph& graph) {
  Lock lock(*this);
  fuse::end_graph(builder_, lock.trace(), graph);
}

void Recorder::refuse_in_graph(const std::string& what) {
  Lock lock(*this);
  fuse::refuse_in_graph(lock.trace(), what);
}

void Recorder::run_graph(const std::shared_ptr<StreamGraph>& graph) {
  Lock lock(*this);
  fuse::run_graph(builder_, lock.trace(), graph);
}

// ---- settings and counters --------------------------------------------------------------

void Recorder::set_mode(Mode mode) {
  Lock lock(*this);
  builder_.cut_every(CutReason::ModeChange);
  builder_.mode.store(mode);
}

void Recorder::set_most_nodes(size_t nodes) {
  Lock lock(*this);
  builder_.most_nodes = nodes;
}

void Recorder::set_limit(size_t operations) {
  Lock lock(*this);
  builder_.limit = operations;
}

void Recorder::set_tier(tiering::Setting setting) {
  Lock lock(*this);
  builder_.tiers.set(setting);
}

std::vector<TierReport> Recorder::tiers() {
  Lock lock(*this);
  return builder_.tiers.report();
}

std::vector<RanSegment> Recorder::watch(tiering::Watch watch) {
  Lock lock(*this);
  return builder_.tiers.watch(watch);
}

bool Recorder::is_settled() {
  Lock lock(*this);
  return builder_.tiers.settled();
}

RecorderStats Recorder::stats() {
  Lock lock(*this);
  RecorderStats stats = builder_.stats;
  stats.nodes = builder_.trie.size();
  stats.uncompiled = uncompiled_.load(std::memory_order_relaxed);
  return stats;
}

void Recorder::reset_stats() {
  Lock lock(*this);
  builder_.stats = {};
  uncompiled_.store(0);
}

void Recorder::wait_until_left() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kMoment = std::chrono::milliseconds(2);
  constexpr auto kLongest = std::chrono::seconds(5);
  for (const auto begin = Clock::now(); Clock::now() - begin < kLongest;) {
    std::this_thread::sleep_for(kMoment);
    if (mutex_.try_lock()) {
      mutex_.unlock();
      return;
    }
  }
}

void Recorder::forget() {
  Lock lock(*this);
  builder_.forget();
}

} // namespace fuse
