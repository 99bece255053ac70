// Copies into new memory, uncompiled.
#pragma once

#include <ATen/core/Tensor.h>

#include "tracing/op_info.h"

namespace fuse {

// Gives `self` the value of `source`, which has its sizes, where a call of `copy` with them runs
// uncompiled; false where it does not.
bool copied_uncompiled(const OpInfo& copy, const at::Tensor& self, const at::Tensor& source);

} // namespace fuse
