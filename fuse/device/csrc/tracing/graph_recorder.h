// The recorder's side of torch.compile: graphs are captured, and replayed.
#pragma once

#include <string>
#include <vector>

#include "tracing/captured_graph.h"
#include "tracing/trace_builder.h"

namespace fuse {

Replay replay(
    TraceBuilder& builder,
    OpenTrace& trace,
    const CompiledGraph& graph,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs);
void end_uncompiled(TraceBuilder& builder, OpenTrace& trace);
bool begin_capture(
    TraceBuilder& builder,
    OpenTrace& trace,
    const CompiledGraph& graph,
    const std::vector<GraphInput>& inputs);
std::string end_capture(
    TraceBuilder& builder,
    OpenTrace& trace,
    CompiledGraph* graph,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs);

} // namespace fuse
