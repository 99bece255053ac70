// Reductions on host memory: what gloo lacks is composed of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>

namespace fuse::distributed {

// The reduction that gloo does itself for elements of this dtype, if there is one. Booleans are
// bytes of 0 and 1 to it: their sum is "any", their product "all".
std::optional<c10d::ReduceOp> native_reduction(
    c10::ScalarType dtype, const c10d::ReduceOp& reduction);
// What a rank's elements are before they are reduced: multiplied, for premul_sum.
at::Tensor prepared(const at::Tensor& flat, const c10d::ReduceOp& reduction);
// `parts`, of shape [ranks, elements], reduced over the ranks.
at::Tensor reduced(const at::Tensor& parts, const c10d::ReduceOp& reduction);
// What a result is after it has been reduced: divided, for avg; integers are rounded to zero.
at::Tensor finished(const at::Tensor& result, const c10d::ReduceOp& reduction, int64_t ranks);

} // namespace fuse::distributed
