// What happens to a call's arguments before it is recorded.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "recorder/op_info.h"

namespace fuse {

// Refuses mixed devices, but for copies, which do not come here; moves host indices; materialises
// lazy conjugation. Returns at once, having changed nothing, for the usual call.
void prepare(const OpInfo& info, torch::jit::Stack* stack);
// The tensor with lazy conjugation and negation carried out.
at::Tensor resolved(const at::Tensor& tensor);
// The device of the first tensor among the arguments that is of this kind, else the first one.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments);

} // namespace fuse
