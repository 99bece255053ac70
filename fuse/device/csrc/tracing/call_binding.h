// Binding of known calls: their outputs are made, and the trace goes on.
#pragma once

#include <ATen/core/stack.h>

#include "tracing/call_key.h"
#include "tracing/open_trace.h"

namespace fuse {

// Makes the outputs of the call on top of `stack`, and puts them in its arguments' place; what it
// writes, draws and passes as varying numbers becomes the trace's.
void bind_call(
    OpenTrace& trace,
    const TrieNode& node,
    const CallKey& key,
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack);

} // namespace fuse
