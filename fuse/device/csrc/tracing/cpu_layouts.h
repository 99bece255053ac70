// Memory formats of the CPU's results, where PyTorch's meta kernels say another one.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include "tracing/op_info.h"

namespace fuse {

// Gives inferred results the sizes that the CPU's kernels would. `arguments` are the call's on meta
// tensors.
void size_as_on_cpu(
    const OpInfo& info, c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results);

// What a CPU kernel makes of an out= that it gives another size: `resized`, which inference says,
// in the order in memory of the CPU's. `written` counts the tensors written before it, and
// `arguments` are the call's on meta tensors.
at::Tensor resized_as_on_cpu(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    const at::Tensor& resized,
    bool was_empty,
    size_t written,
    const torch::jit::Stack& arguments);

} // namespace fuse
