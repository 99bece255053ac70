// Host calls: calls that run through PyTorch's CPU kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

#include "tracing/op_info.h"

namespace fuse {

// Why a call runs on the host: the backend cannot run it, or its segment runs uncompiled.
enum class HostRun : uint8_t { Fallback, Uncompiled };

// Runs a call through PyTorch's CPU kernels on host views of its operands; results and
// overwritten operands come back as host values, moved to the backend where it reads them.
// A fallback is counted as one, and says why. False, and nothing done, where an uncompiled call met
// a limit of the kernel: it is to be recorded.
bool run_on_host(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    torch::jit::Stack* stack,
    HostRun run,
    const std::string& why = "");

} // namespace fuse
