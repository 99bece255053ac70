// Composite CPU kernels: composite operators that run whole where calls run uncompiled.
//
// PyTorch composes `linear` and `matmul` of views and one product. Recorded, views are for nothing;
// where a call runs uncompiled each costs up to a microsecond, as much as the small product that it
// is for. So there the CPU's own composite takes the operands, those of attention and norms too.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/layer_norm_native.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul_native.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/library.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "cpu_exec/typed_kernel.h"
#include "runtime/buffer.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

// What the parts of the CPU's composite would be called within: the call itself has had the
// device's own, and autocast for the CPU is not about this device.
constexpr c10::DispatchKeySet kAround = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);

// Whether a tensor has a buffer of this device: not another's, nor a wrapper.
bool has_buffer(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return tensor.is_privateuseone() && impl->has_storage() &&
      impl->unsafe_storage().data_ptr().get_deleter() == &delete_buffer;
}

// Whether nobody asks for the composite's parts: no subclass, no gradient.
bool is_plain(const at::Tensor& tensor) {
  return !tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python) &&
      !(tensor.requires_grad() && at::GradMode::is_enabled()) && !tensor._fw_grad(0).defined();
}

// A composite operator, and whether it runs whole. It has no kernel of the CPU's own, so that it
// runs there is said here.
class Composite {
 public:
  explicit Composite(const char* name)
      : info_(OpInfo::of(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""))) {
    info_.on_cpu = OpInfo::Known::Yes;
  }

  // Whether it runs whole; else its parts are to be recorded. Some nanoseconds an operand where
  // nothing runs uncompiled, which is the usual call.
  bool runs_whole(
      std::initializer_list<const at::Tensor*> tensors, OperandSummary& operands) const {
    for (const at::Tensor* tensor : tensors) {
      if (tensor->defined() && !has_buffer(*tensor)) {
        return false;
      }
      operands.see(*tensor);
    }
    if (!SegmentTiers::runs_uncompiled()) {
      return false;
    }
    const bool plain = !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
        std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor* tensor) {
          return !tensor->defined() || is_plain(*tensor);
        });
    return plain && Recorder::global().continues_uncompiled(info_, operands, true);
  }

 private:
  const OpInfo& info_;
};

// The CPU's product of rows with a matrix, as its composite has it but for the views.
at::Tensor linear_on_host(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const bool biased = bias.has_value() && bias->defined();
  if (input.dim() < 2 || weight.dim() != 2 || (biased && bias->dim() != 1) ||
      !input.is_contiguous() || input.numel() == 0) {
    return at::native::linear(input, weight, bias);
  }
  const int64_t width = input.size(-1);
  const at::Tensor rows = reshaped(input, {input.numel() / width, width});
  at::Tensor result = biased ? at::cpu::addmm(*bias, rows, transposed(weight))
                             : at::cpu::mm(rows, transposed(weight));
  c10::SmallVector<int64_t, 6> sizes(input.sizes());
  sizes.back() = weight.size(0);
  result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return result;
}

at::Tensor matmul_on_host(const at::Tensor& self, const at::Tensor& other) {
  const bool batches = self.dim() == 3 && other.dim() == 3 && self.size(0) == other.size(0);
  return batches ? at::cpu::bmm(self, other) : at::native::matmul(self, other);
}

at::Tensor linear(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  static const Composite composite("aten::linear");
  const at::Tensor none;
  OperandSummary operands;
  const bool whole =
      composite.runs_whole({&input, &weight, bias.has_value() ? &*bias : &none}, operands);
  if (!whole) {
    return at::native::linear(input, weight, bias);
  }
  const c10::impl::ExcludeDispatchKeyGuard parts_alone(kAround);
  const CpuCall call(operands);
  return call.on_device(
      linear_on_host(call.on_host(input), call.on_host(weight), call.on_host(bias)));
}

at::Tensor matmul(const at::Tensor& self, const at::Tensor& other) {
  static const Composite composite("aten::matmul");
  OperandSummary operands;
  const bool whole = composite.runs_whole({&self, &other}, operands);
  if (!whole) {
    return at::native::matmul(self, other);
  }
  const c10::impl::ExcludeDispatchKeyGuard parts_alone(kAround);
  const CpuCall call(operands);
  return call.on_device(matmul_on_host(call.on_host(self), call.on_host(other)));
}

// Without the means and deviations, which only a gradient asks for.
at::Tensor layer_norm(
    const at::Tensor& input,
    c10::SymIntArrayRef shape,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    double eps,
    bool cudnn) {
  static const Composite composite("aten::layer_norm");
  const at::Tensor none;
  OperandSummary operands;
  const bool whole = composite.runs_whole(
      {&input, weight.has_value() ? &*weight : &none, bias.has_value() ? &*bias : &none}, operands);
  if (!whole) {
    return at::native::layer_norm_symint(input, shape, weight, bias, eps, cudnn);
  }
  const c10::impl::ExcludeDispatchKeyGuard parts_alone(kAround);
  const CpuCall call(operands);
  return call.on_device(
      at::native::layer_norm_symint(
          call.on_host(input), shape, call.on_host(weight), call.on_host(bias), eps, cudnn));
}

// Without dropout, whose numbers are the device's, and where the program left to PyTorch which
// kernel it is: the CPU's composite would choose among the CPU's.
at::Tensor attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool is_causal,
    std::optional<double> scale,
    bool grouped) {
  static const Composite composite("aten::scaled_dot_product_attention");
  const at::Tensor none;
  OperandSummary operands;
  const bool whole = dropout == 0.0 && at::globalContext().userEnabledMathSDP() &&
      at::globalContext().userEnabledFlashSDP() &&
      composite.runs_whole({&query, &key, &value, mask.has_value() ? &*mask : &none}, operands);
  if (!whole) {
    return at::native::scaled_dot_product_attention(
        query, key, value, mask, dropout, is_causal, scale, grouped);
  }
  const c10::impl::ExcludeDispatchKeyGuard parts_alone(kAround);
  const CpuCall call(operands);
  return call.on_device(
      at::native::scaled_dot_product_attention(
          call.on_host(query),
          call.on_host(key),
          call.on_host(value),
          call.on_host(mask),
          dropout,
          is_causal,
          scale,
          grouped));
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("layer_norm", &layer_norm);
  m.impl("linear", &linear);
  m.impl("matmul", &matmul);
  m.impl("scaled_dot_product_attention", &attention);
}

} // namespace

} // namespace fuse
