// Dynamic scalars: numbers that vary from one run of a stream to the next, for which one executable
// serves them all.
#pragma once

#include "tracing/shape_inference.h"

namespace fuse {

// Whether the places of `child` whose numbers are others in this call can be dynamic; makes them
// so, forgets the plans that had them as constants, and puts their words into open traces.
bool generalise(
    TrieNode& child, const CallKey& key, const BoxedCall& call, ShapeInference& inference);

} // namespace fuse
