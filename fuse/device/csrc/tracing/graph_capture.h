// Graph capture: a compiled graph is recorded for the first time at its place, call by call.
#pragma once

#include <vector>

#include "tracing/call_key.h"
#include "tracing/captured_graph.h"
#include "tracing/open_trace.h"

namespace fuse {

// The calls that this thread makes from here on are the graph's.
void begin_capture(
    OpenTrace& trace, const std::vector<GraphInput>& inputs, std::vector<uint64_t> key);
// One of them has been recorded.
void capture_step(OpenTrace& trace, TrieNode& node, const CallKey& key);
// What has been captured, but for the trie's epoch; or why it cannot be replayed, else null.
const char* read_capture(
    const OpenTrace& trace,
    GraphCapture& capture,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs,
    CapturedGraph& captured);

} // namespace fuse
