// Descriptions of calls never seen before, as the engine takes them.
#pragma once

#include "tracing/shape_inference.h"

namespace fuse {

// Fills the node with what is inferred of the call and what the engine makes of it (see
// Engine.describe); new values are numbered from `first_value` on.
Refusal describe(
    TrieNode& node,
    const CallKey& key,
    const BoxedCall& call,
    int64_t first_value,
    ShapeInference& inference);

} // namespace fuse
