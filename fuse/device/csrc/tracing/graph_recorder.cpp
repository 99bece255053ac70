#include "tracing/graph_recorder.h"

#include <algorithm>

#include "tracing/graph_capture.h"
#include "tracing/graph_replay.h"

namespace fuse {

namespace {

// Whether a graph may be recorded as one here, and the key of its inputs; cuts where one begins.
bool prepare(
    TraceBuilder& builder,
    OpenTrace& trace,
    const CompiledGraph& graph,
    const std::vector<GraphInput>& inputs,
    std::vector<uint64_t>& key) {
  if (builder.mode == Mode::Debug || trace.capture != nullptr || trace.graph != nullptr) {
    return false;
  }
  builder.tiers.end(trace);
  int8_t device = -1;
  for (const GraphInput& input : inputs) {
    if (input.kind == GraphInput::Kind::Device) {
      const int8_t own = input.tensor.device().index();
      if (device >= 0 && own != device) {
        return false;
      }
      device = own;
    }
  }
  builder.switch_device(trace, std::max<int8_t>(device, 0));
  if (graph.alone() && !trace.joins && trace.operations != 0) {
    builder.cut_trace(trace, CutReason::Compiled);
  }
  builder.forget_if_due(trace);
  if (!key_of_inputs(trace, inputs, builder, key)) {
    return false;
  }
  trace.joins = trace.joins || !graph.alone();
  return true;
}

// The policy of tiers is asked about what follows.
void leaves_graph(OpenTrace& trace) {
  trace.asked = false;
  trace.behind_graph = true;
}

// Whether none of the executables is there that the graph runs as where it begins a trace.
bool waits(const TraceBuilder& builder, const OpenTrace& trace, const CapturedGraph& captured) {
  std::vector<Plan>& plans = captured.to()->plans;
  const auto ready = [](const Plan& plan) { return plan.ready; };
  if (trace.operations != 0 || plans.empty() || !builder.tiers.may_wait() ||
      builder.mode != Mode::Fused || RecordOnly::here() ||
      std::any_of(plans.begin(), plans.end(), ready)) {
    return false;
  }
  GilGuard gil;
  std::for_each(plans.begin(), plans.end(), PlanRunner::look_for_executables);
  return std::none_of(plans.begin(), plans.end(), ready);
}

} // namespace

Replay replay(
    TraceBuilder& builder,
    OpenTrace& trace,
    const CompiledGraph& graph,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs) {
  std::vector<uint64_t> key;
  key.reserve(inputs.size() * 8);
  if (!prepare(builder, trace, graph, inputs, key)) {
    return Replay::Unknown;
  }
  const CapturedGraph* captured = graph.find(trace.cursor, key, builder.trie.epoch(), inputs);
  if (captured == nullptr) {
    return Replay::Unknown;
  }
  if (waits(builder, trace, *captured)) {
    builder.tiers.begin(trace, builder.limit);
    return Replay::Waits;
  }
  replay_graph(trace, *captured, inputs, outputs);
  if (!captured->steps.empty()) {
    builder.stats.known += captured->steps.size();
    builder.advance(trace, captured->steps);
    leaves_graph(trace);
  }
  return Replay::Recorded;
}

void end_uncompiled(TraceBuilder& builder, OpenTrace& trace) {
  builder.tiers.end(trace);
  leaves_graph(trace);
}

bool begin_capture(
    TraceBuilder& builder,
    OpenTrace& trace,
    const CompiledGraph& graph,
    const std::vector<GraphInput>& inputs) {
  std::vector<uint64_t> key;
  if (!prepare(builder, trace, graph, inputs, key)) {
    return false;
  }
  SegmentTiers::passes(trace);
  begin_capture(trace, inputs, std::move(key));
  return true;
}

std::string end_capture(
    TraceBuilder& builder,
    OpenTrace& trace,
    CompiledGraph* graph,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs) {
  const std::unique_ptr<GraphCapture> capture = std::move(trace.capture);
  if (capture == nullptr || graph == nullptr) {
    return "";
  }
  CapturedGraph captured;
  const char* broken = read_capture(trace, *capture, inputs, outputs, captured);
  if (broken == nullptr) {
    captured.epoch = builder.trie.epoch();
    graph->add(std::move(captured));
  }
  leaves_graph(trace);
  if (trace.operations != 0) {
    builder.cut_if_full(trace); // what calls in a capture are not cut by
  }
  return broken == nullptr ? "" : broken;
}

} // namespace fuse
