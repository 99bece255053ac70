// Random draws on the host: the numbers that the call would draw compiled.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include "tracing/op_info.h"

namespace fuse {

// Runs a random call. `originals` are its arguments, and `stack` ends with the same ones, tensors
// of `device` as host tensors; afterwards it ends with the results, on the host. False, and nothing
// done, for what is not drawn so: other operators, operands of several shapes, refused arguments.
bool draw_on_device(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> originals,
    c10::Device device,
    torch::jit::Stack* stack);

} // namespace fuse
