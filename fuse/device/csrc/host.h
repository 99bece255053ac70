// Calls that run through PyTorch's CPU kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

#include "op_info.h"
#include "recorder.h"

namespace fuse {

// Runs a call through PyTorch's CPU kernels on host views of its operands; results and
// overwritten operands come back as host values, moved to the backend where it reads them.
// `ragged` marks them as made where shapes keep changing, which is not counted as a fallback.
void run_on_host(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    torch::jit::Stack* stack,
    const std::string& why,
    bool ragged);

} // namespace fuse
