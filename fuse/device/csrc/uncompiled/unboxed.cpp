// Operators whose calls run uncompiled often, as kernels that know their types.
#include "uncompiled/unboxed.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmax_cpu_dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cat_cpu_dispatch.h>
#include <ATen/ops/div.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_native.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/index_select_cpu_dispatch.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mean_cpu_dispatch.h>
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
#include <ATen/ops/sub.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
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
  if (weight.dim() != 2 || !indices.is_contiguous()) {
    return at::native::embedding_symint(weight, indices, std::move(padding), by, sparse);
  }
  at::Tensor rows = at::cpu::index_select(weight, 0, reshaped(indices, indices.numel()));
  c10::SmallVector<int64_t, 6> sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  rows.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return rows;
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
  implement<ops::argmax, &at::cpu::argmax>(m);
  implement<ops::cat, &at::cpu::cat>(m);
  implement<ops::div_Tensor, &at::cpu::div>(m);
  implement<ops::embedding, &rows_of>(m);
  implement<ops::gelu, &at::cpu::gelu>(m);
  implement<ops::mean_dim, &at::cpu::mean>(m);
  implement<ops::mul_Tensor, &at::cpu::mul>(m);
  implement<ops::native_layer_norm, &at::cpu::native_layer_norm_symint>(m);
  implement<ops::neg, &at::cpu::neg>(m);
  implement<ops::pow_Tensor_Scalar, &at::cpu::pow>(m);
  implement<ops::relu, &at::cpu::relu>(m);
  implement<ops::rsqrt, &at::cpu::rsqrt>(m);
  implement<ops::sigmoid, &at::cpu::sigmoid>(m);
  implement<ops::silu, &at::cpu::silu>(m);
  implement<ops::sub_Tensor, &at::cpu::sub>(m);
  implement<ops::tanh, &at::cpu::tanh>(m);
}

} // namespace

} // namespace fuse
