#include "tracing/stream_graph.h"

#include <ATen/ops/zeros.h>

#include "runtime/deferred_frees.h"
#include "runtime/generator.h"
#include "tracing/shared_buffers.h"

namespace fuse {

namespace {

const char* words_for(CutReason reason) {
  switch (reason) {
    case CutReason::HostRead: return "it reads a value on the host";
    case CutReason::HostFallback: return "it runs on the host";
    case CutReason::Synchronize: return "it waits for the device";
    case CutReason::Collective: return "it is a collective of several ranks";
    case CutReason::DeviceChange: return "its tensors are another device's";
    case CutReason::OtherStream: return "another stream reads what the graph makes";
    default: return name_of(reason);
  }
}

} // namespace

StreamGraph::~StreamGraph() {
  for (Buffer* buffer : held) {
    DeferredFrees::global().let_go(buffer);
  }
}

void StreamGraph::hold(Buffer& buffer) {
  DeferredFrees::global().hold(&buffer);
  held.push_back(&buffer);
  if (!buffer.array.defined()) {
    give_memory(buffer);
  }
}

void refuse_in_graph(OpenTrace& trace, const std::string& what) {
  if (trace.graph == nullptr) {
    return;
  }
  trace.graph->broken = what;
  TORCH_CHECK(
      false,
      "a graph is being captured on this stream, and cannot hold this call: ",
      what,
      ". Do it before the capture begins or after it has ended: a graph holds what runs on the "
      "device alone, the same calls each time");
}

void refuse_in_graph(OpenTrace& trace, CutReason reason) {
  if (trace.graph != nullptr) {
    refuse_in_graph(trace, words_for(reason));
  }
}

void give_memory(Buffer& buffer) {
  buffer.array =
      c10::make_intrusive<ArrayHandle>(at::zeros({static_cast<int64_t>(buffer.nbytes)}, at::kByte));
  buffer.array->has(buffer.nbytes);
}

void note_draw(OpenTrace& trace, const at::Generator& generator, uint32_t blocks) {
  trace.graph->draws.push_back({trace.dynamic.size(), generator, blocks});
  trace.dynamic.push_back(0);
  trace.dynamic.push_back(0);
}

void read_graph(OpenTrace& trace, StreamGraph& graph) {
  graph.first = trace.first;
  graph.end = trace.cursor;
  graph.operations = trace.operations;
  graph.values = trace.owner.size();
  graph.device = trace.device;
  graph.words = trace.dynamic;
  for (const Leaf& leaf : trace.leaves) {
    graph.reads.push_back(
        {leaf.buffer, leaf.value, leaf.buffer == nullptr ? leaf.array : Array(), leaf.layout});
  }
  for (const int32_t value : trace.live_values()) {
    Buffer* buffer = trace.owner[static_cast<size_t>(value)];
    graph.made.push_back({buffer, value, buffer->layout});
    DeferredFrees::global().hold(buffer);
    graph.held.push_back(buffer);
  }
}

void undo_trace(OpenTrace& trace) {
  trace.give_leaves_back();
  for (Buffer* buffer : trace.owner) {
    if (buffer != nullptr) {
      buffer->pending = false;
    }
  }
  trace.operations = 0;
}

void put_graph(OpenTrace& trace, const std::shared_ptr<StreamGraph>& graph) {
  trace.replayed = graph;
  trace.device = graph->device;
  trace.first = graph->first;
  trace.cursor = graph->end;
  trace.operations = graph->operations;
  trace.owner.resize(graph->values, nullptr);
  for (const StreamGraph::Read& read : graph->reads) {
    if (read.buffer == nullptr) {
      trace.leaves.push_back({read.value, read.array, nullptr, read.layout});
    } else {
      trace.meet(*read.buffer, read.value);
    }
  }
  for (const StreamGraph::Made& made : graph->made) {
    if (trace.holds(*made.buffer)) {
      trace.write(*made.buffer, made.value, made.layout);
    } else {
      leave_to(nullptr, *made.buffer); // others see the result of the last run no more
      made.buffer->array.reset();
      made.buffer->layout = made.layout;
      trace.make(*made.buffer, made.value);
    }
  }
  trace.dynamic = graph->words;
  for (StreamGraph::Draw& one : graph->draws) {
    const RandomDraw state = draw(one.generator, one.blocks);
    trace.dynamic[one.word] = state.seed;
    trace.dynamic[one.word + 1] = state.offset;
  }
}

} // namespace fuse
