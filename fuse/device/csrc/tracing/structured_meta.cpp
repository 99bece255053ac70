#include "tracing/structured_meta.h"

#include <ATen/MetaFunctions.h>
#include <ATen/native/Activation.h>

#include <unordered_map>

namespace fuse {

namespace {

using In = const at::Tensor&;
using Out = at::Tensor&;
using at::Tensor;
using Number = const at::Scalar&;
using MaybeNumber = const std::optional<at::Scalar>&;
using MaybeIn = const std::optional<at::Tensor>&;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Type = at::ScalarType;
using MaybeType = std::optional<at::ScalarType>;
using Text = c10::string_view;
using Ints = at::IntArrayRef;
using MaybeInts = at::OptionalIntArrayRef;

template <typename Signature>
c10::KernelFunction boxed(Signature* function) {
  return c10::KernelFunction::makeFromUnboxedRuntimeFunction(function);
}

// Which form it has, only the CPU's kernels check.
at::Tensor gelu(In self, Text approximate) {
  at::native::get_gelutype_enum(approximate);
  return at::meta::gelu(self, approximate);
}
at::Tensor gelu_backward(In grad_output, In self, Text approximate) {
  at::native::get_gelutype_enum(approximate);
  return at::meta::gelu_backward(grad_output, self, approximate);
}

// clang-format off: a row each
std::unordered_map<std::string, c10::KernelFunction> kernels() {
#define FUSE_META(overload, function, ...) {overload, boxed<__VA_ARGS__>(&at::meta::function)},
#define FUSE_UNARY(name) FUSE_META(#name, name, Tensor(In)) FUSE_META(#name "_", name##_, Out(Out))
#define FUSE_BINARY(name) FUSE_META(#name ".Tensor", name, Tensor(In, In)) \
  FUSE_META(#name "_.Tensor", name##_, Out(Out, In))
#define FUSE_COMPARISON(name) FUSE_BINARY(name) \
  FUSE_META(#name ".Scalar", name, Tensor(In, Number)) FUSE_META(#name "_.Scalar", name##_, Out(Out, Number))
#define FUSE_SUM(name) FUSE_META(#name ".Tensor", name, Tensor(In, In, Number)) \
  FUSE_META(#name "_.Tensor", name##_, Out(Out, In, Number))
#define FUSE_PRODUCT_ADDED(name) FUSE_META(#name, name, Tensor(In, In, In, Number)) \
  FUSE_META(#name "_", name##_, Out(Out, In, In, Number))
#define FUSE_MATMUL_ADDED(name) FUSE_META(#name, name, Tensor(In, In, In, Number, Number)) \
  FUSE_META(#name "_", name##_, Out(Out, In, In, Number, Number))
  return {
    FUSE_UNARY(acos) FUSE_UNARY(asin) FUSE_UNARY(atan) FUSE_UNARY(bitwise_not) FUSE_UNARY(ceil)
    FUSE_UNARY(cos) FUSE_UNARY(cosh) FUSE_UNARY(erf) FUSE_UNARY(exp) FUSE_UNARY(exp2)
    FUSE_UNARY(expm1) FUSE_UNARY(floor) FUSE_UNARY(frac) FUSE_UNARY(hardsigmoid) FUSE_UNARY(log)
    FUSE_UNARY(log10) FUSE_UNARY(log1p) FUSE_UNARY(log2) FUSE_UNARY(mish) FUSE_UNARY(neg)
    FUSE_UNARY(reciprocal) FUSE_UNARY(round) FUSE_UNARY(rsqrt) FUSE_UNARY(sgn) FUSE_UNARY(sigmoid)
    FUSE_UNARY(sign) FUSE_UNARY(silu) FUSE_UNARY(sin) FUSE_UNARY(sinh) FUSE_UNARY(sqrt)
    FUSE_UNARY(tan) FUSE_UNARY(tanh) FUSE_UNARY(trunc)
    FUSE_BINARY(bitwise_and) FUSE_BINARY(bitwise_or) FUSE_BINARY(bitwise_xor) FUSE_BINARY(div)
    FUSE_BINARY(mul) FUSE_BINARY(remainder)
    FUSE_SUM(add) FUSE_SUM(sub)
    FUSE_COMPARISON(eq) FUSE_COMPARISON(ge) FUSE_COMPARISON(gt) FUSE_COMPARISON(le)
    FUSE_COMPARISON(lt) FUSE_COMPARISON(ne)
    FUSE_META("maximum", maximum, Tensor(In, In))
    FUSE_META("minimum", minimum, Tensor(In, In))
    FUSE_META("pow.Tensor_Scalar", pow, Tensor(In, Number))
    FUSE_META("pow_.Scalar", pow_, Out(Out, Number))
    FUSE_META("pow.Tensor_Tensor", pow, Tensor(In, In))
    FUSE_META("pow.Scalar", pow, Tensor(Number, In))
    FUSE_META("clamp", clamp, Tensor(In, MaybeNumber, MaybeNumber))
    FUSE_META("clamp_", clamp_, Out(Out, MaybeNumber, MaybeNumber))
    FUSE_META("clamp_min", clamp_min, Tensor(In, Number))
    FUSE_META("clamp_max", clamp_max, Tensor(In, Number))
    FUSE_META("lerp.Scalar", lerp, Tensor(In, In, Number))
    FUSE_META("lerp_.Scalar", lerp_, Out(Out, In, Number))
    FUSE_META("lerp.Tensor", lerp, Tensor(In, In, In))
    FUSE_PRODUCT_ADDED(addcdiv) FUSE_PRODUCT_ADDED(addcmul)
    {"gelu", boxed(&gelu)}, {"gelu_backward", boxed(&gelu_backward)},
    FUSE_META("leaky_relu", leaky_relu, Tensor(In, Number))
    FUSE_META("sigmoid_backward", sigmoid_backward, Tensor(In, In))
    FUSE_META("silu_backward", silu_backward, Tensor(In, In))
    FUSE_META("tanh_backward", tanh_backward, Tensor(In, In))
    FUSE_META("threshold_backward", threshold_backward, Tensor(In, In, Number))
    FUSE_META("tril", tril, Tensor(In, int64_t))
    FUSE_META("triu", triu, Tensor(In, int64_t))
    FUSE_META("mm", mm, Tensor(In, In))
    FUSE_META("bmm", bmm, Tensor(In, In))
    FUSE_MATMUL_ADDED(addmm) FUSE_MATMUL_ADDED(baddbmm)
    FUSE_META("_softmax", _softmax, Tensor(In, int64_t, bool))
    FUSE_META("_softmax_backward_data", _softmax_backward_data, Tensor(In, In, int64_t, Type))
    FUSE_META("_log_softmax", _log_softmax, Tensor(In, int64_t, bool))
    FUSE_META("_log_softmax_backward_data", _log_softmax_backward_data, Tensor(In, In, int64_t, Type))
    FUSE_META("nll_loss_forward", nll_loss_forward, Two(In, In, MaybeIn, int64_t, int64_t))
    FUSE_META("nll_loss_backward", nll_loss_backward, Tensor(In, In, In, MaybeIn, int64_t, int64_t, In))
    FUSE_META("mse_loss", mse_loss, Tensor(In, In, int64_t))
    FUSE_META("sum.dim_IntList", sum, Tensor(In, MaybeInts, bool, MaybeType))
    FUSE_META("mean.dim", mean, Tensor(In, MaybeInts, bool, MaybeType))
    FUSE_META("cumsum", cumsum, Tensor(In, int64_t, MaybeType))
    FUSE_META("amax", amax, Tensor(In, Ints, bool))
    FUSE_META("amin", amin, Tensor(In, Ints, bool))
    FUSE_META("all", all, Tensor(In))
    FUSE_META("any", any, Tensor(In))
    FUSE_META("arange.start_out", arange_outf, Out(Number, Number, Number, Out))
    FUSE_META("fill_.Scalar", fill_, Out(Out, Number))
    FUSE_META("fill_.Tensor", fill_, Out(Out, In))
    FUSE_META("zero_", zero_, Out(Out))
    FUSE_META("add.out", add_outf, Out(In, In, Number, Out))
    FUSE_META("addcdiv.out", addcdiv_outf, Out(In, In, In, Number, Out))
    FUSE_META("addcmul.out", addcmul_outf, Out(In, In, In, Number, Out))
    FUSE_META("div.out", div_outf, Out(In, In, Out))
    FUSE_META("lerp.Scalar_out", lerp_outf, Out(In, In, Number, Out))
    FUSE_META("mul.out", mul_outf, Out(In, In, Out))
    FUSE_META("sqrt.out", sqrt_outf, Out(In, Out))
    FUSE_META("argmax", argmax, Tensor(In, std::optional<int64_t>, bool))
    FUSE_META("cat", cat, Tensor(const at::ITensorListRef&, int64_t))
    FUSE_META("gather", gather, Tensor(In, int64_t, In, bool))
    FUSE_META("topk", topk, Two(In, int64_t, int64_t, bool, bool))
  };
#undef FUSE_META
#undef FUSE_UNARY
#undef FUSE_BINARY
#undef FUSE_COMPARISON
#undef FUSE_SUM
#undef FUSE_PRODUCT_ADDED
#undef FUSE_MATMUL_ADDED
}
// clang-format on

} // namespace

const c10::KernelFunction* structured_meta(const std::string& overload) {
  static const auto* known = new std::unordered_map<std::string, c10::KernelFunction>(kernels());
  const auto found = known->find(overload);
  return found == known->end() ? nullptr : &found->second;
}

} // namespace fuse
