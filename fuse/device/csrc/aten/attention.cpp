// Which kernel PyTorch calls for scaled_dot_product_attention.
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include "runtime/python_bridge.h"

namespace fuse {

namespace {

// Whether the tensor is one of PyTorch's DTensors, which wrap the device's.
bool is_dtensor(const at::Tensor& tensor) {
  if (!tensor.key_set().has(c10::DispatchKey::Python)) {
    return false;
  }
  const GilGuard gil;
  PyObject* modules = PyImport_GetModuleDict(); // borrowed; of nobody who has not imported it
  PyObject* module = PyDict_GetItemString(modules, "torch.distributed.tensor");
  if (module == nullptr) {
    return false;
  }
  const PyRef type = PyRef::steal(checked(PyObject_GetAttrString(module, "DTensor")));
  const PyRef wrapped = PyRef::steal(checked(THPVariable_Wrap(tensor)));
  const int found = PyObject_IsInstance(wrapped.get(), type.get());
  if (found < 0) {
    throw_python_error();
  }
  return found != 0;
}

// Where no operation of the device's computes it: PyTorch's decomposition, unless the program has
// turned that off.
int64_t without_kernel() {
  return static_cast<int64_t>(
      at::globalContext().userEnabledMathSDP() ? sdp::SDPBackend::math : sdp::SDPBackend::error);
}

// Whether the program allows a kernel. The device has one; its names are those of CUDA's, too,
// which programs for several devices choose by.
bool may_have_kernel() {
  const at::Context& context = at::globalContext();
  return context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() ||
      context.userEnabledMemEfficientSDP();
}

// What is asked of sizes holds for symbolic ones too, as torch.compile traces with; of a size that
// depends on data nothing is known, and nothing holds.
bool has_elements(const at::Tensor& tensor) {
  return TORCH_GUARD_OR_FALSE(tensor.sym_numel().sym_gt(0));
}

bool are_as_long(const at::Tensor& one, const at::Tensor& other, int64_t dim) {
  return TORCH_GUARD_OR_FALSE(one.sym_size(dim).sym_eq(other.sym_size(dim)));
}

// Whether each head of the keys serves as many of the queries.
bool are_shared(const at::Tensor& query, const at::Tensor& key) {
  return TORCH_GUARD_OR_FALSE((query.sym_size(1) % key.sym_size(1)).sym_eq(0));
}

// One recorded operation where its rule covers the call, PyTorch's decomposition elsewhere: also of
// float64, for the operation's logarithms of sums are float32, which no gradcheck forgives. DTensor
// has rules for the operators of CUDA's kernels alone: composites/attention.py is one of those.
int64_t choose_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool,
    std::optional<double>,
    bool grouped) {
  const bool plain = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && dropout == 0.0 &&
      query.is_floating_point() && query.scalar_type() != at::kDouble &&
      query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
      has_elements(query) && has_elements(key) && has_elements(value) &&
      are_as_long(query, key, 0) && are_as_long(query, value, 0) && are_as_long(key, value, 1) &&
      (are_as_long(query, key, 1) || (grouped && are_shared(query, key))) &&
      (!mask.has_value() || !mask->requires_grad());
  if (!plain || !may_have_kernel()) {
    return without_kernel();
  }
  if (!is_dtensor(query)) {
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  }
  // DTensor would share out grouped heads as if there were as many keys as queries.
  return are_as_long(query, key, 1) ? static_cast<int64_t>(sdp::SDPBackend::efficient_attention)
                                    : without_kernel();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &choose_attention);
}

} // namespace

} // namespace fuse

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &fuse::choose_attention)
} // namespace at::native
