// The device's boxed kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tracing/op_info.h"

namespace fuse {

// Records the call on top of `stack`, or runs it on the host: uncompiled, or as a fallback.
void call_boxed(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);

} // namespace fuse
