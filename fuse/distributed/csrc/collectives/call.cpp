#include "collectives/call.h"

#include <c10/core/ScalarType.h>

#include <string>

namespace fuse::distributed {

namespace {

constexpr const char* kEvents[] = {
    "tpu_dist:all_reduce",
    "tpu_dist:broadcast",
    "tpu_dist:reduce",
    "tpu_dist:all_gather",
    "tpu_dist:gather",
    "tpu_dist:scatter",
    "tpu_dist:reduce_scatter",
    "tpu_dist:all_to_all",
    "tpu_dist:barrier"};
constexpr size_t kPrefix = std::char_traits<char>::length("tpu_dist:");

} // namespace

const char* event_name(Kind kind) {
  return kEvents[static_cast<size_t>(kind)];
}

const char* kind_name(Kind kind) {
  return event_name(kind) + kPrefix;
}

std::string dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    default: return std::string(c10::getDtypeNames(dtype).first);
  }
}

std::string reduction_name(const c10d::ReduceOp& reduction) {
  static constexpr const char* kNames[] = {
      "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
  const auto at = static_cast<size_t>(reduction.op_);
  TORCH_CHECK(at < std::size(kNames), "torch.distributed has no reduction of number ", at);
  return kNames[at];
}

} // namespace fuse::distributed
