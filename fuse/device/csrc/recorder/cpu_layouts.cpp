// PyTorch's meta kernels answer for CUDA where devices differ; results are to be the CPU's.
#include "recorder/cpu_layouts.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_meta_dispatch.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace fuse {

namespace {

// Whether half-precision statistics are kept in single precision: where a parameter is.
bool has_wide_parameter(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments.slice(1)) {
    if (value.isTensor() && value.toTensor().defined() &&
        value.toTensor().scalar_type() == at::kFloat) {
      return true;
    }
  }
  return false;
}

// `meta` laid out so; `contiguous` would leave one channel's strides as they are.
at::Tensor in_format(const at::Tensor& meta, at::MemoryFormat format) {
  return at::empty(meta.sizes(), meta.options(), format);
}

at::Tensor column_major_like(const at::Tensor& meta) {
  return meta.mT().clone(at::MemoryFormat::Contiguous).mT();
}

// Operators with pointwise kernels: those tagged so, which `mvlgamma` and a number's powers have
// not, and those that PyTorch forgot.
bool is_pointwise(const c10::OperatorHandle& op, const std::string& name) {
  static const auto* untagged = new std::unordered_set<std::string>{
      "where.self_out",
      "complex.out",
      "elu.out",
      "floor_divide.out",
      "gelu.out",
      "hardshrink.out",
      "hardsigmoid.out",
      "hardswish.out",
      "hardtanh.out",
      "huber_loss.out",
      "leaky_relu.out",
      "mse_loss.out",
      "polar.out",
      "smooth_l1_loss.out",
      "softplus.out",
      "softshrink.out",
      "threshold.out",
  };
  const bool others = name == "mvlgamma.out" || name == "pow.Scalar_out";
  return (op.hasTag(at::Tag::pointwise) && !others) || untagged->count(name) != 0;
}

// What PyTorch's pointwise kernels allocate: `meta`'s sizes, in the order in memory of the
// tensors they read.
at::Tensor laid_out_by_operands(
    const at::Tensor& meta, const OpInfo& info, const torch::jit::Stack& arguments) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).set_check_mem_overlap(false);
  config.declare_static_dtype_and_device(meta.scalar_type(), c10::kMeta);
  config.add_owned_output(at::Tensor());
  size_t read = 0;
  for (size_t at = 0; at < arguments.size(); ++at) {
    if (!info.written[at] && arguments[at].isTensor() && arguments[at].toTensor().is_meta()) {
      if (arguments[at].toTensor().is_complex() && !meta.is_complex()) {
        return meta; // abs and angle go through a complex result of their own
      }
      config.add_owned_const_input(arguments[at].toTensor());
      ++read;
    }
  }
  if (read == 0) {
    return meta;
  }
  at::Tensor result = config.build().output(0);
  return result.sizes() == meta.sizes() ? result : meta;
}

// Which tensors, counted among those written, LAPACK's wrappers leave column-major where they
// give an empty out= its size; a bit for each. PyTorch's meta kernels say row-major.
uint32_t column_major_outs(const std::string& name) {
  static const auto* table = new std::unordered_map<std::string, uint32_t>{
      {"cholesky_inverse.out", 1},
      {"geqrf.a", 1},
      {"linalg_eig.out", 2},
      {"linalg_eigh.eigvals", 2},
      {"_linalg_eigh.eigenvalues", 2},
      {"linalg_householder_product.out", 1},
      {"linalg_ldl_factor_ex.out", 1},
      {"linalg_ldl_solve.out", 1},
      {"linalg_lu_factor_ex.out", 1},
      {"linalg_lu_solve.out", 1},
      {"linalg_qr.out", 3},
      {"ormqr.out", 1},
      {"triangular_solve.X", 3},
  };
  const auto found = table->find(name);
  return found == table->end() ? 0 : found->second;
}

// The statistics that batch and layer normalisation save beside their result.
void lay_out_statistics(
    c10::ArrayRef<c10::IValue> arguments, bool batch_norm, torch::jit::Stack& results) {
  const at::Tensor result = results[0].toTensor();
  const bool half = at::isReducedFloatingType(result.scalar_type());
  const bool evaluates =
      batch_norm && arguments.size() > 5 && arguments[5].isBool() && !arguments[5].toBool();
  for (size_t at = 1; at < std::min<size_t>(results.size(), 3); ++at) {
    if (evaluates) { // saves nothing
      results[at] = result.new_empty({0});
    } else if (half && !has_wide_parameter(arguments)) {
      results[at] = results[at].toTensor().to(result.scalar_type());
    }
  }
}

// Whether a convolution keeps channels last: where its input or its weight does. Those of volumes
// do in oneDNN's kernels alone, which a call of this size may not be worth.
bool keeps_channels_last(const at::Tensor& input, const at::Tensor& weight) {
  return weight.dim() == 4 && input.dim() == 4 &&
      (input.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
       weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast);
}

void lay_out_channels_last(c10::ArrayRef<c10::IValue> operands, torch::jit::Stack& results) {
  if (!keeps_channels_last(operands[0].toTensor(), operands[1].toTensor())) {
    return;
  }
  for (c10::IValue& value : results) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().dim() == 4) {
      value = in_format(value.toTensor(), at::MemoryFormat::ChannelsLast);
    }
  }
}

// Operators whose results are row-major or channels last, whichever their first operand is nearer
// to; inference knows one of the two, or the operand's own order.
bool takes_suggested_format(const std::string& name) {
  return name == "roll" || name == "reflection_pad2d" || name == "replication_pad2d";
}

void lay_out_as_suggested(const at::Tensor& operand, c10::IValue& result) {
  result = in_format(result.toTensor(), operand.suggest_memory_format());
}

} // namespace

void lay_out_as_on_cpu(
    const OpInfo& info, c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) {
  const bool batch_norm = info.name == "native_batch_norm" ||
      info.name == "_batch_norm_with_update" || info.name.rfind("_native_batch_norm_legit", 0) == 0;
  if (batch_norm || takes_suggested_format(info.name)) {
    lay_out_as_suggested(arguments[0].toTensor(), results[0]);
  }
  if (info.name == "_linalg_svd" || info.name == "linalg_eig") { // LAPACK's are column-major
    c10::IValue& vectors = results[info.name == "linalg_eig" ? 1 : 2];
    if (vectors.toTensor().dim() >= 2) {
      vectors = column_major_like(vectors.toTensor());
    }
  } else if (batch_norm || info.name == "native_layer_norm") {
    lay_out_statistics(arguments, batch_norm, results);
  } else if (info.name == "pow.Scalar") { // row-major, whatever the exponents are
    results[0] = in_format(results[0].toTensor(), at::MemoryFormat::Contiguous);
  } else if (info.name == "index.Tensor") { // PyTorch's own rule, of its inference in C++
    results[0] = at::meta::index(arguments[0].toTensor(), arguments[1].toOptionalTensorList());
  } else if (info.name == "convolution" || info.name == "convolution_overrideable") {
    lay_out_channels_last(arguments, results);
  } else if (
      info.name == "convolution_backward" || info.name == "convolution_backward_overrideable") {
    lay_out_channels_last(arguments.slice(1), results); // the gradient comes first
  }
}

at::Tensor resized_as_on_cpu(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    const at::Tensor& resized,
    bool was_empty,
    size_t written,
    const torch::jit::Stack& arguments) {
  if (was_empty && resized.dim() >= 2 && (column_major_outs(info.name) >> written & 1) != 0) {
    return column_major_like(resized);
  }
  return is_pointwise(op, info.name) ? laid_out_by_operands(resized, info, arguments) : resized;
}

} // namespace fuse
