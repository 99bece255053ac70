// Copies into new memory: what `clone`, `contiguous` and `to` end in. As a boxed call that writes,
// the memory would be filled with zeros first, and be looked after as if others could see it.
#include "cpu_exec/fresh_copy.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/copy_native.h>

#include <utility>

#include "cpu_exec/typed_kernel.h"
#include "runtime/buffer.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

// Into memory that has a value, which the call overwrites, or a part of it.
bool copied_in_place(const OpInfo& copy, const at::Tensor& self, const at::Tensor& source) {
  OperandSummary operands;
  operands.see(self, /*written=*/true);
  operands.see(source);
  if (!Recorder::global().continues_uncompiled(copy, operands)) {
    return false;
  }
  const CpuCall call(operands);
  at::Tensor written = call.on_host(std::as_const(self));
  at::native::copy_(written, call.on_host(source), /*non_blocking=*/false);
  return true;
}

} // namespace

bool copied_uncompiled(const OpInfo& copy, const at::Tensor& self, const at::Tensor& source) {
  Buffer* buffer = Buffer::of(self);
  if (buffer->array.defined()) {
    return copied_in_place(copy, self, source);
  }
  if (buffer->pending || buffer->poison || !covers_storage(self)) {
    return false;
  }
  OperandSummary operands;
  operands.see(source);
  if (!Recorder::global().continues_uncompiled(copy, operands)) {
    return false;
  }
  const CpuCall call(operands);
  at::Tensor made =
      at::Tensor(at::detail::empty_strided_cpu(self.sizes(), self.strides(), self.scalar_type()));
  at::native::copy_(made, call.on_host(source), /*non_blocking=*/false);
  Recorder::global().assign(
      buffer, c10::make_intrusive<ArrayHandle>(std::move(made)), buffer->layout);
  return true;
}

} // namespace fuse
