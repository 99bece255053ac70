// PyTorch's CPU kernels as XLA custom calls, for what XLA's CPU compiler does slowly:
// convolutions. Called on XLA's threads, without the GIL; a batch is split over them, and each
// share runs on one thread.
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "handler.h"
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

// How a window moves: a copy of the attributes, which are gone before the last share ends.
class Window {
 public:
  Window(
      Integers stride,
      Integers padding,
      Integers dilation,
      Integers output_padding,
      bool transposed,
      int64_t groups)
      : stride_(stride.begin(), stride.end()),
        padding_(padding.begin(), padding.end()),
        dilation_(dilation.begin(), dilation.end()),
        output_padding_(output_padding.begin(), output_padding.end()),
        transposed_(transposed),
        groups_(groups) {}

  at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight) const {
    return at::convolution(
        x, weight, {}, stride_, padding_, dilation_, transposed_, output_padding_, groups_);
  }
  // The gradient of the input where `which` is 0, of the weight where it is 1.
  at::Tensor gradient(
      const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, int64_t which) const {
    auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
        grad,
        x,
        weight,
        std::nullopt,
        stride_,
        padding_,
        dilation_,
        transposed_,
        output_padding_,
        groups_,
        std::array<bool, 3>{which == 0, which == 1, false});
    return which == 0 ? grad_input : grad_weight;
  }

 private:
  std::vector<int64_t> stride_;
  std::vector<int64_t> padding_;
  std::vector<int64_t> dilation_;
  std::vector<int64_t> output_padding_;
  bool transposed_;
  int64_t groups_;
};

ffi::Future convolution(
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
  const Window window(stride, padding, dilation, output_padding, transposed, groups);
  const at::Tensor x = dense(input);
  const at::Tensor w = dense(weight);
  const at::Tensor result = dense(*out);
  return Shares::start(pool, shares, [=](int64_t share) {
    rows(result, share, shares).copy_(window.convolve(rows(x, share, shares), w));
  });
}

// As `Window::gradient`. Each share makes a gradient of the weight from its own samples.
ffi::Future convolution_gradient(
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
  const Window window(stride, padding, dilation, output_padding, transposed, groups);
  const at::Tensor g = dense(grad);
  const at::Tensor x = dense(input);
  const at::Tensor w = dense(weight);
  const at::Tensor result = dense(*out);
  if (which == 0) {
    return Shares::start(pool, shares, [=](int64_t share) {
      rows(result, share, shares)
          .copy_(window.gradient(rows(g, share, shares), rows(x, share, shares), w, which));
    });
  }
  auto made = std::make_shared<std::vector<at::Tensor>>(static_cast<size_t>(shares));
  return Shares::start(
      pool,
      shares,
      [=](int64_t share) {
        made->at(static_cast<size_t>(share)) =
            window.gradient(rows(g, share, shares), rows(x, share, shares), w, which);
      },
      [=] { add_up(result, *made); });
}

} // namespace
} // namespace fuse

FUSE_HANDLER(convolution, "stride", "padding", "dilation", "output_padding", "transposed", "groups")
FUSE_HANDLER(
    convolution_gradient,
    "stride",
    "padding",
    "dilation",
    "output_padding",
    "transposed",
    "groups",
    "which")
