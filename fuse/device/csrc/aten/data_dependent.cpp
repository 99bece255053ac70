// Operators whose result's size is data: count on the device, one host read, then a fixed shape; or
// the CPU's kernel, where the calls before it ran on the CPU.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "cpu_exec/host_call.h"
#include "runtime/device_index.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

// Row-major positions of the non-zero elements, as a vector of `count` numbers: every element
// is sent to its rank among the non-zero ones, the others to one place past the end.
at::Tensor positions(const at::Tensor& flat, int64_t count) {
  const auto options = flat.options().dtype(at::kLong);
  at::Tensor rank = at::cumsum(flat, 0, at::kLong).sub(1);
  at::Tensor target = at::where(flat, rank, at::scalar_tensor(count, options));
  at::Tensor found = at::zeros({count + 1}, options);
  return found.scatter(0, target, at::arange(flat.numel(), options)).narrow(0, 0, count);
}

// The result of a call by the CPU's kernel, as part of an uncompiled segment; undefined where the
// stream is not in one.
at::Tensor found_uncompiled(const char* name, torch::jit::Stack stack) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  const OpInfo& info = OpInfo::of(op);
  if (Recorder::global().continues_uncompiled({op, info, stack}) &&
      run_on_host(op, info, &stack, HostRun::Uncompiled)) {
    return stack.back().toTensor();
  }
  return {};
}

at::Tensor find_nonzero(const at::Tensor& self) {
  if (at::Tensor found = found_uncompiled("aten::nonzero", {self}); found.defined()) {
    return found;
  }
  at::Tensor flat = self.ne(0).reshape(-1);
  const int64_t count = flat.sum().item().toLong();
  at::Tensor at_flat = positions(flat, count);
  std::vector<at::Tensor> columns;
  int64_t stride = self.numel();
  for (int64_t size : self.sizes()) {
    stride = size == 0 ? 0 : stride / size;
    columns.push_back(size == 0 ? at_flat : at_flat.floor_divide(stride).remainder(size));
  }
  // Transposed, as the CPU returns it.
  return columns.empty() ? at_flat.new_zeros({count, 0}) : at::stack(columns, 0).t();
}

void check_out(const at::Tensor& self, const at::Tensor& out) {
  if (out.device() != self.device()) {
    refuse_devices(self.device(), out.device());
  }
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
}

at::Tensor& put_out(const at::Tensor& found, at::Tensor& out) {
  at::native::resize_output(out, found.sizes()); // warns where there were elements
  return out.copy_(found);
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(
      out.scalar_type() == at::kLong,
      "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
      out.scalar_type());
  check_out(self, out);
  return put_out(find_nonzero(self), out);
}

at::Tensor select_masked(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(
      self.device() == mask.device() || mask.dim() == 0 || self.dim() == 0,
      "Expected self and mask to be on the same device, but got mask on ",
      mask.device(),
      " and self on ",
      self.device());
  if (self.is_privateuseone() && mask.is_privateuseone()) {
    if (at::Tensor found = found_uncompiled("aten::masked_select", {self, mask}); found.defined()) {
      return found;
    }
  }
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  const auto device = self.is_privateuseone() ? self.device() : mask.device();
  at::Tensor where = find_nonzero(mask.to(device).expand(sizes).reshape(-1)).squeeze(1);
  return self.to(device).expand(sizes).reshape(-1).index_select(0, where);
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(),
      "masked_select(): self and result must have the same scalar type");
  check_out(self, out);
  at::assert_no_overlap(out, mask);
  return put_out(select_masked(self, mask), out);
}

bool are_equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.device() == other.device(),
      "Expected all tensors to be on the same device, but found at least two devices, ",
      self.device(),
      " and ",
      other.device(),
      "!");
  return self.sizes() == other.sizes() && self.eq(other).all().item().toBool();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", &find_nonzero);
  m.impl("nonzero.out", &nonzero_out);
  m.impl("masked_select", &select_masked);
  m.impl("masked_select.out", &masked_select_out);
  m.impl("equal", &are_equal);
}

} // namespace

} // namespace fuse
