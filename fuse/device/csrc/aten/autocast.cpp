// Autocast: PyTorch's own lists of operators, applied by one boxed kernel a policy.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace fuse {
namespace {

using at::autocast::cached_cast;
constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;
enum class Policy : uint8_t { Lower, Full, FullByDtype, Promote };

std::string overload(const char* name) {
  return name;
}
std::string overload(const char* name, const char* rest) {
  return std::string(name) + "." + rest;
}

template <typename Function>
void for_each_tensor(torch::jit::Stack* stack, size_t count, Function&& function) {
  for (size_t at = stack->size() - count; at < stack->size(); ++at) {
    c10::IValue& value = (*stack)[at];
    if (value.isTensor()) {
      value = function(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(function(tensor));
      }
      value = list;
    }
  }
}

// Whether the operator takes a dtype. Where the caller asks for none, and the first argument is of
// up to 32 bits of floating point, float32 is filled in (PyTorch's policy fp32_set_opt_dtype).
bool set_dtype(const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  const size_t count = schema.arguments().size();
  const c10::IValue& first = (*stack)[stack->size() - count];
  const bool floating = first.isTensor() && first.toTensor().defined() &&
      first.toTensor().is_floating_point() && first.toTensor().scalar_type() != at::kDouble;
  for (size_t at = 0; at < count; ++at) {
    c10::IValue& value = (*stack)[stack->size() - count + at];
    if (schema.arguments()[at].name() == "dtype") {
      if (floating && value.isNone()) {
        value = static_cast<int64_t>(at::kFloat);
      }
      return true;
    }
  }
  return false;
}

void cast(Policy policy, const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  const size_t count = schema.arguments().size();
  const auto lower = at::autocast::get_autocast_dtype(kDeviceType);
  if (policy == Policy::FullByDtype && set_dtype(schema, stack)) {
    return;
  }
  at::ScalarType to = policy == Policy::Lower ? lower : at::kFloat;
  if (policy == Policy::Promote) {
    to = lower;
    for_each_tensor(stack, count, [&](const at::Tensor& tensor) {
      to = tensor.defined() ? at::autocast::prioritize(to, tensor, kDeviceType) : to;
      return tensor;
    });
  }
  for_each_tensor(stack, count, [&](const at::Tensor& tensor) {
    return tensor.defined() ? cached_cast(to, tensor, kDeviceType) : tensor;
  });
}

class CastKernel final : public c10::OperatorKernel {
 public:
  explicit CastKernel(Policy policy) : policy_(policy) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
    cast(policy_, op.schema(), stack);
    op.callBoxed(stack);
  }

 private:
  Policy policy_;
};

void refuse_binary_cross_entropy(const c10::OperatorHandle&, torch::jit::Stack*) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, or compute the loss "
      "outside autocast.");
}

void add(torch::Library& library, Policy policy, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    library.impl(
        name.c_str(),
        torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CastKernel>(policy)));
  }
}

#define FUSE_PICK(_1, _2, NAME, ...) NAME
#define FUSE_OVERLOAD1(A) overload(#A),
#define FUSE_OVERLOAD2(A, B) overload(#A, #B),
#define FUSE_OVERLOAD(...) FUSE_PICK(__VA_ARGS__, FUSE_OVERLOAD2, FUSE_OVERLOAD1)(__VA_ARGS__)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  add(m, Policy::Lower, {AT_FORALL_LOWER_PRECISION_FP(FUSE_OVERLOAD)});
  add(m, Policy::Full, {AT_FORALL_FP32(FUSE_OVERLOAD)});
  add(m, Policy::FullByDtype, {AT_FORALL_FP32_SET_OPT_DTYPE(FUSE_OVERLOAD)});
  add(m, Policy::Promote, {AT_FORALL_PROMOTE(FUSE_OVERLOAD)});
  // Norms whose dtype-taking overloads PyTorch redispatches to; casting the input is the same.
  add(m, Policy::Full, {"norm.Scalar", "norm.ScalarOpt_dim", "norm.names_ScalarOpt_dim"});
  m.impl(
      "binary_cross_entropy",
      torch::CppFunction::makeFromBoxedFunction<&refuse_binary_cross_entropy>());
}

} // namespace
} // namespace fuse
