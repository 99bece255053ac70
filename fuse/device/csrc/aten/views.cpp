// Views: PyTorch's own kernels work on any storage of its true byte size.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "cpu_exec/boxed_call.h"

namespace fuse {

namespace {

at::Tensor as_strided(
    const at::Tensor& self,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& self, c10::IntArrayRef sizes) {
  return at::native::view(self, sizes);
}
at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}
at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}
at::Tensor view_as_real(const at::Tensor& self) {
  return at::native::view_as_real(self);
}
at::Tensor view_as_complex(const at::Tensor& self) {
  return at::native::view_as_complex(self);
}

// A view of nothing, as on the CPU, where there is nothing to shuffle.
at::Tensor channel_shuffle(const at::Tensor& self, int64_t groups) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::channel_shuffle", "");
  static const OpInfo& info = OpInfo::of(op);
  if (self.numel() == 0) {
    return self.alias();
  }
  torch::jit::Stack stack{self, groups};
  call_boxed(op, info, &stack);
  return stack[0].toTensor();
}

// One queue: memory is never used on another stream than it was made on, so nothing has to be told.
void record_stream(at::Tensor&, c10::Stream) {}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &unfold);
  m.impl("channel_shuffle", &channel_shuffle);
  m.impl("view_as_real", &view_as_real);
  m.impl("view_as_complex", &view_as_complex);
  m.impl("record_stream", &record_stream);
}

} // namespace

} // namespace fuse
