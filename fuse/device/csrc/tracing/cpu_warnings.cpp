#include "tracing/cpu_warnings.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fuse {

namespace {

// Operators whose CPU kernels say nothing.
constexpr std::array<std::string_view, 10> kSilent{
    "addbmm",
    "bernoulli",
    "eye",
    "linspace",
    "log_sigmoid_forward",
    "logspace",
    "multinomial",
    "narrow_copy",
    "randperm",
    "range"};

thread_local int living = 0; // DroppedWarnings

} // namespace

DroppedWarnings::DroppedWarnings(std::string_view beginning)
    : outer_(c10::WarningUtils::get_warning_handler()), beginning_(beginning) {
  c10::WarningUtils::set_warning_handler(this);
  ++living;
}

DroppedWarnings::~DroppedWarnings() {
  c10::WarningUtils::set_warning_handler(outer_);
  --living;
}

bool DroppedWarnings::any() {
  return living > 0;
}

void DroppedWarnings::process(const c10::Warning& warning) {
  if (!std::string_view(warning.msg()).starts_with(beginning_)) {
    outer_->process(warning);
  }
}

void warn_of_bounds(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& drawn = arguments[0].toTensor();
  if (!drawn.defined() || !at::isFloatingType(drawn.scalar_type())) {
    return; // of integers it is an error
  }
  const bool from = arguments.size() > 3; // and to, which may be none
  const int64_t first = from ? arguments[1].toInt() : 0;
  const c10::IValue& last = arguments[from ? 2 : 1];
  // The kernel itself, on no elements.
  at::empty({0}, at::TensorOptions(drawn.scalar_type()).device(at::kCPU))
      .random_(first, last.isNone() ? std::nullopt : std::make_optional(last.toInt()));
}

void warn_of_resize(const OpInfo& info, const at::Tensor& out, c10::IntArrayRef sizes) {
  const std::string_view name(info.name);
  const std::string_view base = name.substr(0, name.find('.'));
  if (out.numel() == 0 || std::find(kSilent.begin(), kSilent.end(), base) != kSilent.end()) {
    return;
  }
  if (base != "arange") {
    at::native::resize_output_check(out, sizes);
    return;
  }
  TORCH_WARN(
      kResizedByArange,
      out.sizes(),
      " is ",
      out.numel(),
      " which does not match the computed number of elements ",
      c10::multiply_integers(sizes),
      ". Note that this may occur as a result of rounding error. "
      "The out tensor will be resized to a tensor of shape (",
      c10::multiply_integers(sizes),
      ",).");
}

} // namespace fuse
