// Composite operators that run whole on the host where shapes keep changing, and in brief traces.
//
// PyTorch composes `linear` and `matmul` of views and one product. Recorded, views are for nothing;
// but where a call runs uncompiled each costs up to a microsecond, as much as the small product
// that it is for. So there the CPU's own composite takes the operands as they are.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul_native.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/library.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "buffer.h"
#include "host.h"
#include "op_info.h"
#include "prepare.h"
#include "recorder.h"

namespace fuse {

namespace {

// The buffer behind a tensor of this device, none behind another's or a wrapper's.
const Buffer* buffer_of(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  const bool ours = tensor.defined() && tensor.is_privateuseone() && impl->has_storage() &&
      impl->unsafe_storage().data_ptr().get_deleter() == &delete_buffer;
  return ours ? Buffer::of(tensor) : nullptr;
}

// Whether nobody asks for the composite's parts: no subclass, no gradient, no conjugation.
bool is_plain(const at::Tensor& tensor) {
  return !tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python) &&
      !tensor.is_conj() && !tensor.is_neg() &&
      !(tensor.requires_grad() && at::GradMode::is_enabled()) && !tensor._fw_grad(0).defined();
}

// Some nanoseconds an operand where nothing runs uncompiled, which is the usual call.
bool runs_whole(std::initializer_list<const at::Tensor*> operands) {
  bool uncompiled = Recorder::global().follows_brief();
  for (const at::Tensor* operand : operands) {
    const Buffer* buffer = buffer_of(*operand);
    if (buffer == nullptr && operand->defined()) {
      return false;
    }
    uncompiled = uncompiled || (buffer != nullptr && buffer->ragged);
  }
  return uncompiled && Recorder::global().mode() == Mode::Fused &&
      !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
      std::all_of(operands.begin(), operands.end(), [](const at::Tensor* operand) {
           return !operand->defined() || is_plain(*operand);
         });
}

// A composite is never recorded, so whether it may be part of a brief trace is said here.
class Composite {
 public:
  explicit Composite(const char* name)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "")), info_(OpInfo::of(op_)) {
    info_.brief = true;
  }

  // Nothing where the parts are to be recorded after all.
  std::optional<at::Tensor> run(torch::jit::Stack stack) const {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    Recorder& recorder = Recorder::global();
    const bool ragged = reads_ragged(stack);
    if (!ragged && !recorder.goes_on_briefly(info_, stack)) {
      return std::nullopt;
    }
    recorder.run_uncompiled(op_, info_, &stack, ragged ? HostRun::Ragged : HostRun::Brief);
    return std::move(stack[0]).toTensor();
  }

 private:
  const c10::OperatorHandle op_;
  const OpInfo& info_;
};

at::Tensor linear(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const at::Tensor none;
  if (runs_whole({&input, &weight, bias.has_value() ? &*bias : &none})) {
    static const Composite composite("aten::linear");
    if (auto result = composite.run({input, weight, bias})) {
      return *std::move(result);
    }
  }
  return at::native::linear(input, weight, bias);
}

at::Tensor matmul(const at::Tensor& self, const at::Tensor& other) {
  if (runs_whole({&self, &other})) {
    static const Composite composite("aten::matmul");
    if (auto result = composite.run({self, other})) {
      return *std::move(result);
    }
  }
  return at::native::matmul(self, other);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("linear", &linear);
  m.impl("matmul", &matmul);
}

} // namespace

} // namespace fuse
