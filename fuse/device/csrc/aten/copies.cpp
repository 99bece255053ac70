// Copies: between devices, and to the host.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "cpu_exec/boxed_call.h"
#include "cpu_exec/fresh_copy.h"
#include "cpu_exec/host_values.h"
#include "runtime/copier.h"
#include "tracing/prepare.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

// Gives `target`, which covers its whole storage, the value of a CPU tensor of its sizes.
void put(const at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  check_process();
  Buffer* buffer = Buffer::of(target);
  // In memory order, so that the array is row-major whatever the tensor's strides are; a copy,
  // for the caller may change `source` afterwards.
  at::Tensor ordered = at::empty_strided(
      target.sizes(), target.strides(), source.options().dtype(target.scalar_type()));
  Array value = Copier::global().copy(
      std::move(ordered), source, non_blocking, Streams::global().here().number());
  c10::SmallVector<int64_t, 6> shape;
  physical_shape(target.sizes(), target.strides(), shape);
  const uint32_t layout = LayoutTable::global().intern(target.scalar_type(), shape);
  Recorder::global().assign(buffer, std::move(value), layout);
}

void copy_device_to_device(const at::Tensor& self, const at::Tensor& source) {
  if (self.device() != source.device()) {
    self.copy_(source.cpu());
    return;
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static const OpInfo& info = OpInfo::of(op);
  if (copied_uncompiled(info, self, source)) {
    return;
  }
  torch::jit::Stack stack{self, resolved(source), false};
  call_boxed(op, info, &stack);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) {
    return self;
  }
  const bool expands = source.sizes() != self.sizes();
  if (expands && source.device() == self.device()) {
    at::assert_no_partial_overlap(self, source); // of the source as given, as PyTorch does
  }
  if (expands) { // in the words of the CPU's kernel, whose errors those of expand() are not
    const auto common = at::infer_size(self.sizes(), source.sizes());
    TORCH_CHECK(
        self.sizes() == common,
        "output with shape ",
        self.sizes(),
        " doesn't match the broadcast shape ",
        c10::IntArrayRef(common));
  }
  const at::Tensor expanded = expands ? source.expand(self.sizes()) : source;
  if (self.is_conj() || self.is_neg()) {
    // The memory holds the conjugate (or negative): write that.
    at::Tensor plain = self.is_conj() ? self.conj() : at::_neg_view(self);
    at::Tensor value = expanded.to(self.device(), self.scalar_type());
    plain.copy_(self.is_conj() ? at::conj_physical(value.resolve_conj()) : value.neg());
    return self;
  }
  if (self.is_privateuseone() && source.is_privateuseone()) {
    copy_device_to_device(self, expanded);
  } else if (self.is_privateuseone()) {
    TORCH_CHECK(source.is_cpu(), "cannot copy from device ", source.device(), " to the tpu device");
    if (covers_storage(self)) {
      put(self, resolved(expanded), non_blocking);
    } else {
      at::Tensor staged = at::empty(self.sizes(), self.options());
      put(staged, resolved(expanded), non_blocking);
      copy_device_to_device(self, staged);
    }
  } else {
    TORCH_CHECK(self.is_cpu(), "cannot copy from the tpu device to device ", self.device());
    self.copy_(host_tensor(resolved(expanded)));
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor self = target;
  return copy_(self, source, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  at::Tensor self = target;
  if (self.sizes() != source.sizes()) {
    self.resize_(source.sizes());
  }
  return copy_(self, source, false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  return at::_local_scalar_dense(host_tensor(resolved(self)));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

} // namespace

} // namespace fuse
