// Operators whose calls run uncompiled often, as kernels that know their types.
#include "uncompiled/unboxed.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmax_cpu_dispatch.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_and_cpu_dispatch.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_not_cpu_dispatch.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_or_cpu_dispatch.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cat_cpu_dispatch.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cos_cpu_dispatch.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/cumsum_cpu_dispatch.h>
#include <ATen/ops/div.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_native.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/index_select_cpu_dispatch.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/isin_cpu_dispatch.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/lt_cpu_dispatch.h>
#include <ATen/ops/max.h>
#include <ATen/ops/max_cpu_dispatch.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mean_cpu_dispatch.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/neg_cpu_dispatch.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/relu_cpu_dispatch.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/rsqrt_cpu_dispatch.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sin_cpu_dispatch.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/ops/where.h>
#include <ATen/ops/where_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <utility>

namespace fuse {

void UnboxedOperands::see(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return;
  }
  elements_ += tensor.numel();
  for (int64_t size : tensor.sizes()) {
    hash_ = (hash_ ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15ull;
  }
  hash_ ^= hash_ >> 29 ^ static_cast<uint64_t>(tensor.scalar_type());
  if (!tensor.is_privateuseone()) {
    plain_ = plain_ && tensor.is_cpu() && tensor.dim() == 0;
    return;
  }
  const Buffer* buffer = Buffer::of(tensor);
  plain_ = plain_ && (device_ < 0 || device_ == buffer->device) && !tensor.is_conj() &&
      !tensor.is_neg() && !buffer->pending && !buffer->poison && buffer->array.defined();
  ragged_ = ragged_ || buffer->ragged;
  device_ = buffer->device;
  most_bytes_ = std::max(most_bytes_, buffer->nbytes);
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
void count_integers(const at::Tensor& numbers, int64_t low, int64_t high, at::Tensor counts) {
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

template <typename Operator, typename Operator::schema* kernel>
void implement(torch::Library& library) {
  std::string name = Operator::name;
  if (*Operator::overload_name != '\0') {
    name += std::string(".") + Operator::overload_name;
  }
  library.impl(name.c_str(), TORCH_FN((Unboxed<Operator, kernel>::call)));
}

// What models are made of that write token by token, and policies: where calls are small.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  implement<ops::_softmax, &at::cpu::_softmax>(m);
  implement<ops::add_Tensor, &at::cpu::add>(m);
  implement<ops::addmm, &at::cpu::addmm>(m);
  implement<ops::argmax, &at::cpu::argmax>(m);
  implement<ops::bitwise_and_Tensor, &at::cpu::bitwise_and>(m);
  implement<ops::bitwise_not, &at::cpu::bitwise_not>(m);
  implement<ops::bitwise_or_Tensor, &at::cpu::bitwise_or>(m);
  implement<ops::bmm, &at::cpu::bmm>(m);
  implement<ops::cat, &at::cpu::cat>(m);
  implement<ops::clone, &at::native::clone>(m);
  implement<ops::cos, &at::cpu::cos>(m);
  implement<ops::cumsum, &at::cpu::cumsum>(m);
  implement<ops::div_Tensor, &at::cpu::div>(m);
  implement<ops::embedding, &rows_of>(m);
  implement<ops::eq_Scalar, &at::cpu::eq>(m);
  implement<ops::exp, &at::cpu::exp>(m);
  implement<ops::gelu, &at::cpu::gelu>(m);
  implement<ops::histc, &histogram>(m);
  implement<ops::isin_Tensor_Tensor, &at::cpu::isin>(m);
  implement<ops::lt_Scalar, &at::cpu::lt>(m);
  implement<ops::max, &at::cpu::max>(m);
  implement<ops::mean_dim, &at::cpu::mean>(m);
  implement<ops::mm, &at::cpu::mm>(m);
  implement<ops::mul_Tensor, &at::cpu::mul>(m);
  implement<ops::native_layer_norm, &at::cpu::native_layer_norm_symint>(m);
  implement<ops::neg, &at::cpu::neg>(m);
  implement<ops::pow_Tensor_Scalar, &at::cpu::pow>(m);
  implement<ops::relu, &at::cpu::relu>(m);
  implement<ops::rsqrt, &at::cpu::rsqrt>(m);
  implement<ops::sigmoid, &at::cpu::sigmoid>(m);
  implement<ops::silu, &at::cpu::silu>(m);
  implement<ops::sin, &at::cpu::sin>(m);
  implement<ops::sub_Tensor, &at::cpu::sub>(m);
  implement<ops::sum_dim_IntList, &at::cpu::sum>(m);
  implement<ops::tanh, &at::cpu::tanh>(m);
  implement<ops::where_self, &at::cpu::where>(m);
}

} // namespace

} // namespace fuse
