// Values in host memory, and calls that run through PyTorch's CPU kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

#include "op_info.h"
#include "recorder.h"

namespace fuse {

// The value of a device tensor as a CPU tensor of its own sizes and strides; not to be written.
// Shares memory with the backend where the platform is the CPU. Cuts if the value is pending.
at::Tensor host_tensor(const at::Tensor& tensor);
// The bytes behind a CPU tensor that is dense in memory, as a flat uint8 tensor sharing them.
at::Tensor bytes_of(const at::Tensor& tensor);
// A backend array of a value that is in host memory only. GIL held.
PyRef to_backend(const ArrayHandle& handle, uint32_t layout, int8_t device);
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
