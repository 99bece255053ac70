// Operators as kernels that know their types: how operands are looked at, and the few that
// PyTorch's kernel for the CPU alone would not do for.
#include "cpu_exec/typed_kernel.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_native.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/index_select_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <utility>

#include "runtime/device_index.h"

namespace fuse {

c10::List<std::optional<at::Tensor>> CpuCall::on_host(
    const c10::List<std::optional<at::Tensor>>& tensors) {
  c10::List<std::optional<at::Tensor>> hosts;
  hosts.reserve(tensors.size());
  for (const std::optional<at::Tensor> tensor : tensors) {
    hosts.push_back(on_host(tensor));
  }
  return hosts;
}

at::Tensor CpuCall::on_device(at::Tensor result) const {
  if (!result.defined()) {
    return result;
  }
  TORCH_CHECK(
      result.layout() == c10::Layout::Strided,
      "an operator returns a ",
      result.layout(),
      " tensor, where the tpu device computes dense (strided) ones only. Run it on the CPU");
  const bool shared = !result._is_zerotensor() && result.storage().use_count() != 1;
  return from_host(shared ? result.clone() : std::move(result), device_);
}

TypedOperator::TypedOperator(const c10::OperatorHandle& op, Otherwise otherwise)
    : info_(OpInfo::of(op)),
      otherwise_(otherwise),
      is_shown_composed_(info_.name == "convolution") {
  for (size_t at = 0; at < info_.written.size(); ++at) {
    written_ |= uint64_t{info_.written[at]} << at;
  }
}

bool TypedOperator::is_traced() {
  return torch::jit::tracer::isTracing();
}

namespace {

// PyTorch's, without its views of a matrix of rows where the indices lie in a row.
at::Tensor rows_of(
    const at::Tensor& weight,
    const at::Tensor& indices,
    c10::SymInt padding,
    bool by,
    bool sparse) {
  const bool numbers = indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt;
  if (weight.dim() != 2 || !indices.is_contiguous() || !numbers) {
    return at::native::embedding_symint(weight, indices, std::move(padding), by, sparse);
  }
  at::Tensor rows = at::cpu::index_select(weight, 0, reshaped(indices, indices.numel()));
  c10::SmallVector<int64_t, 6> sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  rows.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return rows;
}

// The counts of `numbers`, as PyTorch's accelerators bin them: by integer division.
void count_integers(
    const at::Tensor& numbers, int64_t low, int64_t high, const at::Tensor& counts) {
  const auto* number = numbers.const_data_ptr<int64_t>();
  auto* count = counts.mutable_data_ptr<int64_t>();
  const int64_t most = numbers.numel();
  if (low == high && most != 0) {
    const auto [least, greatest] = std::minmax_element(number, number + most);
    low = *least;
    high = *greatest;
  }
  if (low == high) {
    --low;
    ++high;
  }
  for (const int64_t one : c10::ArrayRef<int64_t>(number, static_cast<size_t>(most))) {
    if (one >= low && one <= high) {
      ++count[std::min((one - low) * counts.numel() / (high - low), counts.numel() - 1)];
    }
  }
}

// PyTorch's, and integers too, which its kernel for the CPU refuses.
at::Tensor histogram(
    const at::Tensor& self, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return at::native::histogram_histc(self, bins, low, high);
  }
  TORCH_CHECK(bins > 0, "histc(): bins must be > 0, but got ", bins);
  TORCH_CHECK(low.toLong() <= high.toLong(), "histc(): max must be larger than min");
  at::Tensor counts = at::zeros({bins}, self.options().dtype(at::kLong));
  count_integers(self.to(at::kLong).contiguous(), low.toLong(), high.toLong(), counts);
  return counts.to(self.scalar_type());
}

} // namespace

std::optional<c10::KernelFunction> special_kernel(
    const c10::OperatorHandle& op, Otherwise otherwise) {
  const std::string& name = OpInfo::of(op).name;
  if (name == "embedding") {
    return typed_kernel<at::_ops::embedding::schema>(op, otherwise, &rows_of);
  }
  if (name == "histc") {
    return typed_kernel<at::_ops::histc::schema>(op, otherwise, &histogram);
  }
  return std::nullopt;
}

} // namespace fuse
