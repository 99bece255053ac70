// Operations on lists of tensors, as optimizers call them: recorded tensor by tensor.
//
// PyTorch's kernel for a list calls the in-place operator of each tensor, which infers shapes that
// are those of the tensor anyway and calls the out= operator: 1.1 us a tensor, 0.4 here. Lists
// that need more thought than that go PyTorch's way.
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tracing/recorder.h"

namespace fuse {

namespace {

using Scalars = at::ArrayRef<at::Scalar>;

// An operator that is recorded without the dispatcher.
class Recorded {
 public:
  Recorded(const char* name, const char* overload)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)),
        info_(OpInfo::of(op_)) {}

  template <typename... Arguments>
  at::Tensor operator()(const Arguments&... arguments) {
    torch::jit::Stack stack;
    stack.reserve(sizeof...(arguments));
    (stack.emplace_back(arguments), ...);
    call_boxed(op_, info_, &stack);
    return std::move(stack.front()).toTensor();
  }

 private:
  c10::OperatorHandle op_;
  const OpInfo& info_;
};

// Whether the tensors with the same place in each list are floating point, on one device
// of this kind, and equal in sizes and dtype: then the results are too.
template <typename... Lists>
bool are_alike(at::TensorList first, const Lists&... others) {
  if (first.empty() || ((others.size() != first.size()) || ...)) {
    return false;
  }
  for (size_t at = 0; at < first.size(); ++at) {
    const at::Tensor& one = first[at];
    // Unused where there is one list.
    [[maybe_unused]] const auto like = [&](const at::Tensor& other) {
      return other.device() == one.device() && other.scalar_type() == one.scalar_type() &&
          other.sizes() == one.sizes();
    };
    if (!one.is_privateuseone() || !c10::isFloatingType(one.scalar_type()) ||
        !(like(others[at]) && ...)) {
      return false;
    }
  }
  return true;
}

// Writes each tensor through `write`, of which autograd learns here: nobody below would tell it.
template <typename Write>
void for_each(at::TensorList written, Write&& write) {
  for (size_t at = 0; at < written.size(); ++at) {
    write(written[at], at);
    written[at].unsafeGetTensorImpl()->bump_version();
  }
}

bool is_real(const at::Scalar& scalar) {
  return scalar.isFloatingPoint() || scalar.isIntegral(/*includeBool=*/false);
}

bool are_real(Scalars scalars, size_t count) {
  return scalars.size() == count && std::all_of(scalars.begin(), scalars.end(), is_real);
}

at::Tensor number(const at::Scalar& scalar) {
  return at::native::wrapped_scalar_tensor(scalar);
}

void add_list(at::TensorList self, at::TensorList other, const at::Scalar& alpha) {
  if (!are_alike(self, other) || !is_real(alpha)) {
    return at::native::foreach_tensor_add_list_kernel_slow_(self, other, alpha);
  }
  static Recorded add("aten::add", "out");
  for_each(self, [&](const at::Tensor& one, size_t at) { add(one, other[at], alpha, one); });
}

void add_scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!are_alike(self) || !is_real(scalar)) {
    return at::native::foreach_tensor_add_scalar_kernel_slow_(self, scalar);
  }
  static Recorded add("aten::add", "out");
  const at::Tensor other = number(scalar);
  for_each(self, [&](const at::Tensor& one, size_t) { add(one, other, at::Scalar(1), one); });
}

std::vector<at::Tensor> added_list(
    at::TensorList self, at::TensorList other, const at::Scalar& alpha) {
  if (!are_alike(self, other) || !is_real(alpha)) {
    return at::native::foreach_tensor_add_list_kernel_slow(self, other, alpha);
  }
  static Recorded add("aten::add", "Tensor");
  std::vector<at::Tensor> results;
  for (size_t at = 0; at < self.size(); ++at) {
    results.push_back(add(self[at], other[at], alpha));
  }
  return results;
}

void mul_list(at::TensorList self, at::TensorList other) {
  if (!are_alike(self, other)) {
    return at::native::foreach_tensor_mul_list_kernel_slow_(self, other);
  }
  static Recorded mul("aten::mul", "out");
  for_each(self, [&](const at::Tensor& one, size_t at) { mul(one, other[at], one); });
}

void mul_scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!are_alike(self) || !is_real(scalar)) {
    return at::native::foreach_tensor_mul_scalar_kernel_slow_(self, scalar);
  }
  static Recorded mul("aten::mul", "out");
  const at::Tensor other = number(scalar);
  // In the order of PyTorch's own in-place operator.
  for_each(self, [&](const at::Tensor& one, size_t) { mul(other, one, one); });
}

void div_list(at::TensorList self, at::TensorList other) {
  if (!are_alike(self, other)) {
    return at::native::foreach_tensor_div_list_kernel_slow_(self, other);
  }
  static Recorded div("aten::div", "out");
  for_each(self, [&](const at::Tensor& one, size_t at) { div(one, other[at], one); });
}

void div_scalar(at::TensorList self, const at::Scalar& scalar) {
  if (!are_alike(self) || !is_real(scalar)) {
    return at::native::foreach_tensor_div_scalar_kernel_slow_(self, scalar);
  }
  static Recorded div("aten::div", "out");
  const at::Tensor other = number(scalar);
  for_each(self, [&](const at::Tensor& one, size_t) { div(one, other, one); });
}

void div_scalars(at::TensorList self, Scalars scalars) {
  if (!are_alike(self) || !are_real(scalars, self.size())) {
    return at::native::foreach_tensor_div_scalarlist_kernel_slow_(self, scalars);
  }
  static Recorded div("aten::div", "out");
  for_each(self, [&](const at::Tensor& one, size_t at) { div(one, number(scalars[at]), one); });
}

void lerp_scalar(at::TensorList self, at::TensorList ends, const at::Scalar& weight) {
  if (!are_alike(self, ends) || !is_real(weight)) {
    return at::native::foreach_tensor_lerp_list_kernel_slow_(self, ends, weight);
  }
  static Recorded lerp("aten::lerp", "Scalar_out");
  for_each(self, [&](const at::Tensor& one, size_t at) { lerp(one, ends[at], weight, one); });
}

void addcmul_scalar(
    at::TensorList self, at::TensorList one, at::TensorList other, const at::Scalar& value) {
  if (!are_alike(self, one, other) || !is_real(value)) {
    return at::native::foreach_tensor_addcmul_scalar_slow_(self, one, other, value);
  }
  static Recorded addcmul("aten::addcmul", "out");
  for_each(self, [&](const at::Tensor& sum, size_t at) {
    addcmul(sum, one[at], other[at], value, sum);
  });
}

void addcdiv_scalar(
    at::TensorList self, at::TensorList one, at::TensorList other, const at::Scalar& value) {
  if (!are_alike(self, one, other) || !is_real(value)) {
    return at::native::foreach_tensor_addcdiv_scalar_slow_(self, one, other, value);
  }
  static Recorded addcdiv("aten::addcdiv", "out");
  for_each(self, [&](const at::Tensor& sum, size_t at) {
    addcdiv(sum, one[at], other[at], value, sum);
  });
}

void addcdiv_scalars(
    at::TensorList self, at::TensorList one, at::TensorList other, Scalars values) {
  if (!are_alike(self, one, other) || !are_real(values, self.size())) {
    return at::native::foreach_tensor_addcdiv_scalarlist_slow_(self, one, other, values);
  }
  static Recorded addcdiv("aten::addcdiv", "out");
  for_each(self, [&](const at::Tensor& sum, size_t at) {
    addcdiv(sum, one[at], other[at], values[at], sum);
  });
}

std::vector<at::Tensor> square_roots(at::TensorList self) {
  if (!are_alike(self)) {
    return at::native::foreach_tensor_sqrt_slow(self);
  }
  static Recorded sqrt("aten::sqrt", "");
  std::vector<at::Tensor> results;
  for (const at::Tensor& one : self) {
    results.push_back(sqrt(one));
  }
  return results;
}

// In the place of PyTorch's own, which would compose them of more calls: see kComposed.
TORCH_LIBRARY_IMPL(aten, PrivateUse3, m) {
  m.impl("_foreach_add_.List", &add_list);
  m.impl("_foreach_add_.Scalar", &add_scalar);
  m.impl("_foreach_add.List", &added_list);
  m.impl("_foreach_mul_.List", &mul_list);
  m.impl("_foreach_mul_.Scalar", &mul_scalar);
  m.impl("_foreach_div_.List", &div_list);
  m.impl("_foreach_div_.Scalar", &div_scalar);
  m.impl("_foreach_div_.ScalarList", &div_scalars);
  m.impl("_foreach_lerp_.Scalar", &lerp_scalar);
  m.impl("_foreach_addcmul_.Scalar", &addcmul_scalar);
  m.impl("_foreach_addcdiv_.Scalar", &addcdiv_scalar);
  m.impl("_foreach_addcdiv_.ScalarList", &addcdiv_scalars);
  m.impl("_foreach_sqrt", &square_roots);
}

} // namespace
} // namespace fuse
