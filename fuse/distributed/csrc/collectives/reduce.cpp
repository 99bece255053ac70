#include "collectives/reduce.h"

#include <ATen/ATen.h>

#include <optional>

#include "collectives/call.h"

namespace fuse::distributed {

namespace {

using Op = c10d::ReduceOp::RedOpType;

std::optional<c10d::ReduceOp> of_bools(Op op) {
  switch (op) {
    case Op::SUM:
    case Op::MAX:
    case Op::BOR: return c10d::ReduceOp(Op::MAX);
    case Op::PRODUCT:
    case Op::MIN:
    case Op::BAND: return c10d::ReduceOp(Op::MIN);
    case Op::BXOR: return c10d::ReduceOp(Op::BXOR);
    default: return std::nullopt;
  }
}

template <typename Function>
at::Tensor folded(const at::Tensor& parts, Function function) {
  at::Tensor result = parts[0].clone();
  for (int64_t rank = 1; rank < parts.size(0); ++rank) {
    result = function(result, parts[rank]);
  }
  return result;
}

// What averages and sums with a factor are before the division: sums.
at::Tensor combined(const at::Tensor& parts, const c10d::ReduceOp& reduction) {
  const auto dtype = parts.scalar_type();
  if (dtype == at::kBool) {
    const std::optional<c10d::ReduceOp> op = of_bools(reduction.op_);
    TORCH_CHECK(op.has_value(), "booleans have no ", reduction_name(reduction));
    return op->op_ == Op::MAX ? parts.any(0)
        : op->op_ == Op::MIN
        ? parts.all(0)
        : folded(parts, [](auto& a, const auto& b) { return a.bitwise_xor(b); });
  }
  switch (reduction.op_) {
    case Op::SUM:
    case Op::AVG:
    case Op::PREMUL_SUM:
      if (parts.size(0) == 2) {
        return parts[0].add(parts[1]); // the same bits in half the time
      }
      return parts.sum(at::IntArrayRef{0}, false, dtype);
    case Op::PRODUCT: return folded(parts, [](auto& a, const auto& b) { return a.mul(b); });
    case Op::MIN: return folded(parts, [](auto& a, const auto& b) { return at::minimum(a, b); });
    case Op::MAX: return folded(parts, [](auto& a, const auto& b) { return at::maximum(a, b); });
    case Op::BAND: return folded(parts, [](auto& a, const auto& b) { return a.bitwise_and(b); });
    case Op::BOR: return folded(parts, [](auto& a, const auto& b) { return a.bitwise_or(b); });
    case Op::BXOR: return folded(parts, [](auto& a, const auto& b) { return a.bitwise_xor(b); });
    default: TORCH_CHECK(false, "no reduction ", reduction_name(reduction));
  }
}

} // namespace

at::Tensor prepared(const at::Tensor& flat, const c10d::ReduceOp& reduction) {
  if (reduction.op_ != Op::PREMUL_SUM) {
    return flat;
  }
  // Its name in every version of PyTorch from 2.11 on; newer ones have another one besides.
  using Factor = c10d::NCCLPreMulSumSupplement;
  const auto* factor = dynamic_cast<const Factor*>(reduction.supplement_.get());
  TORCH_CHECK(factor != nullptr, "premul_sum without a factor: use dist._make_nccl_premul_sum");
  return factor->tensor_factor.defined()
      ? flat.mul(factor->tensor_factor.cpu().to(flat.scalar_type()))
      : flat.mul(factor->double_factor);
}

at::Tensor reduced(const at::Tensor& parts, const c10d::ReduceOp& reduction) {
  at::Tensor result = combined(parts, reduction);
  const int64_t ranks = parts.size(0);
  if (reduction.op_ != Op::AVG) {
    return result;
  }
  if (at::isIntegralType(result.scalar_type(), true)) {
    return result.div(ranks, "trunc").to(result.scalar_type());
  }
  return result.div_(ranks);
}

} // namespace fuse::distributed
