#include "tracing/stream_graph_recorder.h"

#include "tracing/shared_buffers.h"

namespace fuse {

void begin_graph(TraceBuilder& builder, OpenTrace& trace, std::shared_ptr<StreamGraph> graph) {
  TORCH_CHECK(
      trace.graph == nullptr && trace.capture == nullptr,
      "a capture has begun on this stream already; end it first");
  builder.cut_trace(trace, CutReason::Graph);
  builder.tiers.leave(trace);
  trace.cursor = &graph->calls.root();
  trace.graph = std::move(graph);
}

void drop_graph(TraceBuilder& builder, OpenTrace& trace) {
  if (trace.graph != nullptr) {
    free_dead_buffers();
    undo_trace(trace);
    const std::shared_ptr<StreamGraph> graph = std::move(trace.graph); // outlives the next line
    builder.cut_trace(trace, CutReason::Graph); // nothing is recorded: the next trace begins
  }
}

void end_graph(TraceBuilder& builder, OpenTrace& trace, StreamGraph& graph) {
  TORCH_CHECK(
      trace.graph.get() == &graph,
      "this graph is not being captured on the current stream; a capture ends on the stream that "
      "it began on");
  std::exception_ptr failed;
  if (graph.broken.empty()) {
    free_dead_buffers();
    read_graph(trace, graph);
    graph.generation = builder.generation();
    try {
      builder.plan_trace(trace);
    } catch (const std::exception&) {
      failed = std::current_exception();
    }
  }
  drop_graph(builder, trace);
  if (failed) {
    std::rethrow_exception(failed);
  }
  TORCH_CHECK(
      graph.broken.empty(),
      "the graph was not captured, for it cannot hold one of the calls: ",
      graph.broken);
}

void run_graph(TraceBuilder& builder, OpenTrace& trace, const std::shared_ptr<StreamGraph>& graph) {
  builder.cut_trace(trace, CutReason::Graph);
  builder.tiers.leave(trace);
  if (graph->operations == 0) {
    return;
  }
  if (graph->generation != builder.generation()) {
    graph->calls.root().forget_plans();
    graph->generation = builder.generation();
  }
  for (const StreamGraph::Read& read : graph->reads) {
    Buffer* buffer = read.buffer;
    if (buffer == nullptr) {
      continue;
    }
    finds(trace, *buffer, builder); // what another stream is to make of it is made
    TORCH_CHECK(!buffer->poison, *buffer->poison);
    TORCH_CHECK(
        buffer->layout == read.layout || !buffer->array.defined(),
        "the graph reads a tensor that has been given memory of another layout since it was "
        "captured; capture it anew, or write the tensor's values by copy_");
    if (!buffer->array.defined()) {
      buffer->layout = read.layout;
      give_memory(*buffer);
    }
  }
  for (const StreamGraph::Made& made : graph->made) {
    finds(trace, *made.buffer, builder);
  }
  put_graph(trace, graph);
  builder.stats.operations += graph->operations;
  builder.stats.known += graph->operations;
  builder.cut_trace(trace, CutReason::Graph);
}

} // namespace fuse
