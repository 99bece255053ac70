// PyTorch's meta kernels answer for CUDA where devices differ. Results' dtypes and strides are
// asked of the CPU's (fuse/trace/cpu_probe.py); here is what asking does not tell.
#include "tracing/cpu_layouts.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/new_empty.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace fuse {

namespace {

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

} // namespace

void size_as_on_cpu(
    const OpInfo& info, c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) {
  const bool batch_norm = info.name == "native_batch_norm" ||
      info.name == "_batch_norm_with_update" || info.name.rfind("_native_batch_norm_legit", 0) == 0;
  const bool evaluates =
      batch_norm && arguments.size() > 5 && arguments[5].isBool() && !arguments[5].toBool();
  for (size_t at = 1; evaluates && at < std::min<size_t>(results.size(), 3); ++at) {
    results[at] = results[0].toTensor().new_empty({0}); // saves no statistics
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
