// Layer normalisation by PyTorch's CPU kernels as an XLA custom call: one pass over the rows, where
// XLA's compiler makes one for the mean, two for the variance and one for the result, each with all
// threads waiting for the last. Called on XLA's threads, without the GIL; the rows are split over
// them, and each share runs on one thread.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/sum.h>

#include <array>
#include <optional>
#include <vector>

#include "laid.h"
#include "shares.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;

// Numbers of a share: some 10 us.
constexpr double kShareNumbers = 1 << 15;
constexpr int64_t kSharesPerThread = 2;

int64_t share_count(ffi::ThreadPool& pool, const at::Tensor& rows) {
  const auto work = static_cast<double>(rows.numel());
  return Shares::count(pool, rows.size(0), work, kShareNumbers, kSharesPerThread);
}

std::optional<at::Tensor> given(bool there, const ffi::AnyBuffer& buffer) {
  return there ? std::make_optional(dense(buffer)) : std::nullopt;
}

// x and the result are [rows, width], weight and bias [width] or, where absent, any buffer;
// mean and rstd are [rows, 1].
ffi::Error layer_norm(
    ffi::ThreadPool pool,
    ffi::AnyBuffer x,
    ffi::AnyBuffer weight,
    ffi::AnyBuffer bias,
    ffi::Result<ffi::AnyBuffer> out,
    ffi::Result<ffi::AnyBuffer> mean,
    ffi::Result<ffi::AnyBuffer> rstd,
    bool weighted,
    bool biased,
    double eps) {
  const at::Tensor rows = dense(x);
  const auto gamma = given(weighted, weight);
  const auto beta = given(biased, bias);
  const std::array<at::Tensor, 3> results{dense(*out), dense(*mean), dense(*rstd)};
  const int64_t shares = share_count(pool, rows);
  Shares::run(pool, shares, [&](int64_t share) {
    auto part = [=](const at::Tensor& whole) { return Shares::part(whole, 0, share, shares); };
    auto [normal, means, deviations] =
        at::native_layer_norm(part(rows), {rows.size(1)}, gamma, beta, eps);
    part(results[0]).copy_(normal);
    part(results[1]).copy_(means);
    part(results[2]).copy_(deviations);
  });
  return ffi::Error::Success();
}

// The gradients of x, weight and bias. Each share sums its own rows for the latter two.
ffi::Error layer_norm_gradient(
    ffi::ThreadPool pool,
    ffi::AnyBuffer grad,
    ffi::AnyBuffer x,
    ffi::AnyBuffer mean,
    ffi::AnyBuffer rstd,
    ffi::AnyBuffer weight,
    ffi::Result<ffi::AnyBuffer> grad_x,
    ffi::Result<ffi::AnyBuffer> grad_weight,
    ffi::Result<ffi::AnyBuffer> grad_bias) {
  const std::array<at::Tensor, 4> rows{dense(grad), dense(x), dense(mean), dense(rstd)};
  const at::Tensor gamma = dense(weight);
  const at::Tensor result = dense(*grad_x);
  const int64_t width = result.size(1);
  const int64_t shares = share_count(pool, result);
  const at::Tensor weight_sums = at::empty({shares, width}, gamma.options());
  const at::Tensor bias_sums = at::empty({shares, width}, gamma.options());
  Shares::run(pool, shares, [&](int64_t share) {
    auto part = [=](const at::Tensor& whole) { return Shares::part(whole, 0, share, shares); };
    auto [made, made_weight, made_bias] = at::native_layer_norm_backward(
        part(rows[0]),
        part(rows[1]),
        {width},
        part(rows[2]),
        part(rows[3]),
        gamma,
        gamma, // only whether there is a bias matters
        {true, true, true});
    part(result).copy_(made);
    weight_sums[share].copy_(made_weight);
    bias_sums[share].copy_(made_bias);
  });
  const BareKernels kernels;
  dense(*grad_weight).copy_(weight_sums.sum(0));
  dense(*grad_bias).copy_(bias_sums.sum(0));
  return ffi::Error::Success();
}

} // namespace
} // namespace fuse

// The default visibility that the macro below lacks: the symbols are found by name.
#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    fuse_layer_norm,
    fuse::layer_norm,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()
        .Arg<xla::ffi::AnyBuffer>()
        .Arg<xla::ffi::AnyBuffer>()
        .Ret<xla::ffi::AnyBuffer>()
        .Ret<xla::ffi::AnyBuffer>()
        .Ret<xla::ffi::AnyBuffer>()
        .Attr<bool>("weighted")
        .Attr<bool>("biased")
        .Attr<double>("eps"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    fuse_layer_norm_gradient,
    fuse::layer_norm_gradient,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()
        .Arg<xla::ffi::AnyBuffer>()
        .Arg<xla::ffi::AnyBuffer>()
        .Arg<xla::ffi::AnyBuffer>()
        .Arg<xla::ffi::AnyBuffer>()
        .Ret<xla::ffi::AnyBuffer>()
        .Ret<xla::ffi::AnyBuffer>()
        .Ret<xla::ffi::AnyBuffer>());

#pragma GCC visibility pop
