// Preparation of a call's arguments before it is recorded.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tracing/op_info.h"

namespace fuse {

// Refuses mixed devices, but for copies, which do not come here; moves host indices; materialises
// lazy conjugation. Returns at once, having changed nothing, for the usual call.
void prepare(const OpInfo& info, torch::jit::Stack* stack);
// Whether the call writes a tensor with lazy conjugation or negation. PyTorch's own fallback takes
// care of most; of products and triangular solves, which BLAS conjugates itself, it does not.
bool writes_unresolved(const OpInfo& info, const torch::jit::Stack& stack);
// Makes such a call on resolved copies, and copies their values back.
void call_on_resolved(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
// Whether an index selects by position: a mask of booleans, or of bytes as before there were any.
bool is_mask(const at::Tensor& index);
// The tensor with lazy conjugation and negation carried out.
at::Tensor resolved(const at::Tensor& tensor);
// The device that a call is of: of the first tensor among its arguments, in lists too, else the one
// it is given, else the current one.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments);

} // namespace fuse
