#include "call.h"

#include <c10/core/ScalarType.h>

namespace fuse::distributed {

const char* kind_name(Kind kind) {
  static constexpr const char* names[] = {
      "all_reduce",
      "broadcast",
      "reduce",
      "all_gather",
      "gather",
      "scatter",
      "reduce_scatter",
      "all_to_all",
      "barrier"};
  return names[static_cast<size_t>(kind)];
}

std::string dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    default: return std::string(c10::getDtypeNames(dtype).first);
  }
}

std::string reduction_name(const c10d::ReduceOp& reduction) {
  static constexpr const char* names[] = {
      "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
  const auto at = static_cast<size_t>(reduction.op_);
  TORCH_CHECK(at < std::size(names), "torch.distributed has no reduction of number ", at);
  return names[at];
}

} // namespace fuse::distributed
