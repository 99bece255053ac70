// The recorder's side of stream graphs: captures begin and end, and what they hold is run.
#pragma once

#include <memory>

#include "tracing/stream_graph.h"
#include "tracing/trace_builder.h"

namespace fuse {

void begin_graph(TraceBuilder& builder, OpenTrace& trace, std::shared_ptr<StreamGraph> graph);
void end_graph(TraceBuilder& builder, OpenTrace& trace, StreamGraph& graph);
void run_graph(TraceBuilder& builder, OpenTrace& trace, const std::shared_ptr<StreamGraph>& graph);
// The stream captures no more, and what it captured is dropped. No effect where it does not.
void drop_graph(TraceBuilder& builder, OpenTrace& trace);

} // namespace fuse
