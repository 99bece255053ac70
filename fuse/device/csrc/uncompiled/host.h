// Calls that run through PyTorch's CPU kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

#include "recorder/op_info.h"
#include "recorder/recorder.h"

namespace fuse {

// Runs a call through PyTorch's CPU kernels on host views of its operands; results and
// overwritten operands come back as host values, moved to the backend where it reads them.
// Only a fallback is counted as one. False, and nothing done,
// where a call that is no fallback met a limit of the kernel: it is to be recorded.
bool run_on_host(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    torch::jit::Stack* stack,
    const std::string& why,
    HostRun run);

} // namespace fuse
