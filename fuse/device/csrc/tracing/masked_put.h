// Masked assignment: x[mask] = value, without a host read where that can be.
#pragma once

#include <ATen/core/stack.h>

#include "tracing/op_info.h"

namespace fuse {

// Runs `tensor[mask] = value` as a choice between the two where the value does not depend on how
// many elements are selected; false, and the stack as it was, for every other call.
bool put_by_mask(const OpInfo& info, torch::jit::Stack* stack);

} // namespace fuse
