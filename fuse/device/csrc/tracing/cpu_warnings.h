// Warnings of CPU kernels, for calls that none of them runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string_view>

#include "tracing/op_info.h"

namespace fuse {

constexpr std::string_view kResized = "An output with one or more elements was resized";
constexpr std::string_view kResizedByArange = "The number of elements in the out tensor of shape ";

// While one lives, warnings of this thread that begin so are dropped, any where `beginning` is
// empty. Inference resizes tensors of its own, and kernels are asked about calls that they do not
// run: the call warns wherever it comes by.
class DroppedWarnings : public c10::WarningHandler {
 public:
  explicit DroppedWarnings(std::string_view beginning);
  ~DroppedWarnings() override;
  DroppedWarnings(const DroppedWarnings&) = delete;
  DroppedWarnings& operator=(const DroppedWarnings&) = delete;
  void process(const c10::Warning& warning) override;
  // Whether one lives in this thread.
  static bool any();

 private:
  c10::WarningHandler* outer_;
  std::string_view beginning_;
};

// Warns as the CPU's kernel of `random_` does of bounds that the dtype does not hold; the arguments
// are a call's.
void warn_of_bounds(c10::ArrayRef<c10::IValue> arguments);
// Warns as the CPU's kernel does before it gives `out` these sizes.
void warn_of_resize(const OpInfo& info, const at::Tensor& out, c10::IntArrayRef sizes);

} // namespace fuse
