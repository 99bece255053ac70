// PyTorch's CPU kernels as XLA custom calls, for what XLA's CPU compiler does slowly:
// convolutions. Called on XLA's threads, without the GIL; a batch is split over them, and each
// share runs on one thread.
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <array>
#include <utility>
#include <vector>

#include "shares.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;

// Multiplications that are worth a thread: some 20 us.
constexpr double kProductGrain = 1 << 20;

// Multiplications of a convolution: each weight meets each element of the smaller side's
// positions; close enough to choose a number of threads.
double products(const ffi::AnyBuffer& weight, const ffi::AnyBuffer& positions) {
  const auto channels = static_cast<double>(positions.dimensions()[1]);
  return static_cast<double>(weight.element_count()) *
      static_cast<double>(positions.element_count()) / channels;
}

ffi::Error convolution(
    ffi::ThreadPool pool,
    ffi::AnyBuffer input,
    ffi::AnyBuffer weight,
    ffi::Result<ffi::AnyBuffer> out,
    Integers stride,
    Integers padding,
    Integers dilation,
    Integers output_padding,
    bool transposed,
    int64_t groups) {
  const double work = products(weight, transposed ? input : *out);
  const int64_t shares = Shares::count(pool, input.dimensions()[0], work, kProductGrain);
  Shares::run(pool, shares, [&](int64_t share) {
    at::Tensor result = at::convolution(
        rows(input, share, shares),
        rows(weight),
        std::nullopt,
        list(stride),
        list(padding),
        list(dilation),
        transposed,
        list(output_padding),
        groups);
    rows(*out, share, shares).copy_(result);
  });
  return ffi::Error::Success();
}

// The gradient of the input where `which` is 0, of the weight where it is 1.
ffi::Error convolution_gradient(
    ffi::ThreadPool pool,
    ffi::AnyBuffer grad,
    ffi::AnyBuffer input,
    ffi::AnyBuffer weight,
    ffi::Result<ffi::AnyBuffer> out,
    Integers stride,
    Integers padding,
    Integers dilation,
    Integers output_padding,
    bool transposed,
    int64_t groups,
    int64_t which) {
  const double work = products(weight, transposed ? input : grad);
  const int64_t shares = Shares::count(pool, input.dimensions()[0], work, kProductGrain);
  std::vector<at::Tensor> parts(static_cast<size_t>(shares));
  Shares::run(pool, shares, [&](int64_t share) {
    auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
        rows(grad, share, shares),
        rows(input, share, shares),
        rows(weight),
        std::nullopt,
        list(stride),
        list(padding),
        list(dilation),
        transposed,
        list(output_padding),
        groups,
        std::array<bool, 3>{which == 0, which == 1, false});
    if (which == 0) {
      rows(*out, share, shares).copy_(grad_input);
    } else {
      parts[static_cast<size_t>(share)] = grad_weight;
    }
  });
  if (which == 1) {
    add_up(rows(*out), parts);
  }
  return ffi::Error::Success();
}

// The attributes that say how a window moves, in the order of the handlers' arguments.
template <typename Binding>
auto with_window(Binding binding) {
  return std::move(binding)
      .template Attr<Integers>("stride")
      .template Attr<Integers>("padding")
      .template Attr<Integers>("dilation")
      .template Attr<Integers>("output_padding")
      .template Attr<bool>("transposed")
      .template Attr<int64_t>("groups");
}

} // namespace
} // namespace fuse

// The default visibility that the macro below lacks: the symbols are found by name.
#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    fuse_convolution,
    fuse::convolution,
    fuse::with_window(
        xla::ffi::Ffi::Bind()
            .Ctx<xla::ffi::ThreadPool>()
            .Arg<xla::ffi::AnyBuffer>()
            .Arg<xla::ffi::AnyBuffer>()
            .Ret<xla::ffi::AnyBuffer>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    fuse_convolution_gradient,
    fuse::convolution_gradient,
    fuse::with_window(
        xla::ffi::Ffi::Bind()
            .Ctx<xla::ffi::ThreadPool>()
            .Arg<xla::ffi::AnyBuffer>()
            .Arg<xla::ffi::AnyBuffer>()
            .Arg<xla::ffi::AnyBuffer>()
            .Ret<xla::ffi::AnyBuffer>())
        .Attr<int64_t>("which"));

#pragma GCC visibility pop
