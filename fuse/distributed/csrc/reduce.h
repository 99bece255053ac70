// Reductions on host memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace fuse::distributed {

// What a rank's elements are before they are reduced: multiplied, for premul_sum.
at::Tensor prepared(const at::Tensor& flat, const c10d::ReduceOp& reduction);
// `parts`, of shape [ranks, elements], reduced over the ranks. Half precision is added up in
// float32 and rounded once; the sum of booleans is "any", their product "all".
at::Tensor reduced(const at::Tensor& parts, const c10d::ReduceOp& reduction);
// What a result is after it has been reduced: divided, for avg; integers are rounded to zero.
at::Tensor finished(const at::Tensor& result, const c10d::ReduceOp& reduction, int64_t ranks);

} // namespace fuse::distributed
