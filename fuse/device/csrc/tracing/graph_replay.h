// Graph replay: a captured graph is recorded in one step.
#pragma once

#include <vector>

#include "tracing/captured_graph.h"
#include "tracing/open_trace.h"
#include "tracing/trace_cutter.h"

namespace fuse {

// What the inputs are, as a key that captured graphs are found by; false for inputs that no graph
// is captured with.
bool key_of_inputs(
    OpenTrace& trace,
    const std::vector<GraphInput>& inputs,
    TraceCutter& cutter,
    std::vector<uint64_t>& key);
// Does to the trace what recording the graph's calls does, but for its place on the trie.
void replay_graph(
    OpenTrace& trace,
    const CapturedGraph& captured,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs);

} // namespace fuse
