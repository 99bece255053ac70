// Reductions on host memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace fuse::distributed {

// What a rank's elements are before they are reduced: multiplied, for premul_sum.
at::Tensor prepared(const at::Tensor& flat, const c10d::ReduceOp& reduction);
// `parts`, of shape [ranks, elements], reduced over the ranks. Half precision is added up in
// float32 and rounded once; the sum of booleans is "any", their product "all"; an average of
// integers is rounded to zero.
at::Tensor reduced(const at::Tensor& parts, const c10d::ReduceOp& reduction);

} // namespace fuse::distributed
