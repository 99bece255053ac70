// Random draws on the host: the numbers that the call would draw compiled.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include "tracing/op_info.h"

namespace fuse {

// Runs a random call, of tensors of `device`. `stack` ends with its arguments, on the host, and
// afterwards with the results, on the host. False, and nothing done, for what is not drawn so:
// other operators, operands of shapes that do not fit, what PyTorch's kernel is to refuse.
bool draw_on_host(const OpInfo& info, c10::Device device, torch::jit::Stack* stack);

} // namespace fuse
