// Layer normalisation by PyTorch's CPU kernels as an XLA custom call: one pass over the rows, where
// XLA's compiler makes one for the mean, two for the variance and one for the result, each with all
// threads waiting for the last. Called on XLA's threads, without the GIL; the rows are split over
// them, and each share runs on one thread.
#include <ATen/core/Tensor.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "handler.h"
#include "shares.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;

// Numbers of a share: some 10 us.
constexpr double kShareNumbers = 1 << 15;
constexpr int64_t kSharesPerThread = 2;

int64_t share_count(ffi::ThreadPool& pool, const ffi::AnyBuffer& x) {
  const auto work = static_cast<double>(x.element_count());
  return Shares::count(pool, x.dimensions()[0], work, kShareNumbers, kSharesPerThread);
}

std::optional<at::Tensor> given(bool there, const ffi::AnyBuffer& buffer) {
  return there ? std::make_optional(dense(buffer)) : std::nullopt;
}

// x and the result are [rows, width], weight and bias [width] or, where absent, any buffer;
// mean and rstd are [rows, 1].
ffi::Future layer_norm(
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
  const auto gamma = given(weighted, weight);
  const auto beta = given(biased, bias);
  const int64_t width = x.dimensions()[1];
  const int64_t shares = share_count(pool, x);
  const at::Tensor input = dense(x);
  const std::array<at::Tensor, 3> results{dense(*out), dense(*mean), dense(*rstd)};
  return Shares::start(pool, shares, [=](int64_t share) {
    auto [normal, means, deviations] =
        at::native_layer_norm(rows(input, share, shares), {width}, gamma, beta, eps);
    rows(results[0], share, shares).copy_(normal);
    rows(results[1], share, shares).copy_(means);
    rows(results[2], share, shares).copy_(deviations);
  });
}

// The gradients of x, weight and bias. Each share sums its own rows for the latter two.
ffi::Future layer_norm_gradient(
    ffi::ThreadPool pool,
    ffi::AnyBuffer grad,
    ffi::AnyBuffer x,
    ffi::AnyBuffer mean,
    ffi::AnyBuffer rstd,
    ffi::AnyBuffer weight,
    ffi::Result<ffi::AnyBuffer> grad_x,
    ffi::Result<ffi::AnyBuffer> grad_weight,
    ffi::Result<ffi::AnyBuffer> grad_bias) {
  const at::Tensor gamma = dense(weight);
  const int64_t width = x.dimensions()[1];
  const int64_t shares = share_count(pool, x);
  const std::array<at::Tensor, 4> operands{dense(grad), dense(x), dense(mean), dense(rstd)};
  const std::array<at::Tensor, 3> results{dense(*grad_x), dense(*grad_weight), dense(*grad_bias)};
  auto weights = std::make_shared<std::vector<at::Tensor>>(static_cast<size_t>(shares));
  auto biases = std::make_shared<std::vector<at::Tensor>>(static_cast<size_t>(shares));
  return Shares::start(
      pool,
      shares,
      [=](int64_t share) {
        auto [made, made_weight, made_bias] = at::native_layer_norm_backward(
            rows(operands[0], share, shares),
            rows(operands[1], share, shares),
            {width},
            rows(operands[2], share, shares),
            rows(operands[3], share, shares),
            gamma,
            gamma, // only whether there is a bias matters
            {true, true, true});
        rows(results[0], share, shares).copy_(made);
        weights->at(static_cast<size_t>(share)) = made_weight;
        biases->at(static_cast<size_t>(share)) = made_bias;
      },
      [=] {
        add_up(results[1], *weights);
        add_up(results[2], *biases);
      });
}

} // namespace
} // namespace fuse

FUSE_HANDLER(layer_norm, "weighted", "biased", "eps")
FUSE_HANDLER(layer_norm_gradient)
