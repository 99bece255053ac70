// CPU kernels of the LSTM cell that PyTorch fuses on every device but the CPU.
//
// The device records a cell as one operation, for which the CPU has none; a call that runs
// uncompiled needs one. The workspace kept for the gradient is laid out as in PyTorch's CUDA
// kernels (RNN.cu), as that of the backends' rules is: a cell and its gradient may run at different
// places.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace fuse {

namespace {

using Optional = std::optional<at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// In float32 where it is narrower.
at::Tensor wide(const at::Tensor& tensor) {
  return tensor.element_size() < 4 ? tensor.to(at::kFloat) : tensor;
}

bool is_given(const Optional& tensor) {
  return tensor.has_value() && tensor->defined();
}

at::Tensor biased(const at::Tensor& gates, const Optional& bias) {
  return is_given(bias) ? at::add(wide(gates), wide(*bias)) : wide(gates);
}

// `hy[B, H]`, `cy[B, H]` and the activated gates i, f, g, o as `workspace[B, 4H]`.
ThreeTensors lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const Optional& input_bias,
    const Optional& hidden_bias) {
  at::Tensor workspace =
      at::add(biased(input_gates, input_bias), biased(hidden_gates, hidden_bias));
  const int64_t width = workspace.size(1) / 4;
  at::Tensor i_f = workspace.narrow(1, 0, 2 * width);
  at::Tensor g = workspace.narrow(1, 2 * width, width);
  at::Tensor o = workspace.narrow(1, 3 * width, width);
  i_f.sigmoid_();
  g.tanh_();
  o.sigmoid_();
  const at::Tensor i = i_f.narrow(1, 0, width);
  const at::Tensor f = i_f.narrow(1, width, width);
  const at::Tensor cy = i.mul(g).addcmul_(f, wide(cx));
  const auto dtype = input_gates.scalar_type();
  return {cy.tanh().mul_(o).to(dtype), cy.to(dtype), workspace.to(dtype)};
}

// Gradients of the gates `[B, 4H]`, of `cx[B, H]` and of a bias `[4H]`. An undefined gradient of a
// result counts as zero; without any, nothing has a gradient.
ThreeTensors lstm_cell_backward(
    const Optional& grad_hy,
    const Optional& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  if (!is_given(grad_hy) && !is_given(grad_cy)) {
    return {};
  }
  const at::Tensor gates = wide(workspace);
  const auto parts = gates.chunk(4, 1);
  const at::Tensor squashed = wide(cy).tanh();
  const at::Tensor by_hidden = is_given(grad_hy) ? wide(*grad_hy) : at::zeros_like(squashed);
  const at::Tensor rest = gates.neg().add_(1); // 1 - i, 1 - f, 1 - g, 1 - o
  const auto rests = rest.chunk(4, 1);
  at::Tensor change = by_hidden.mul(parts[3]).mul_(squashed.square().neg_().add_(1));
  if (is_given(grad_cy)) {
    change.add_(wide(*grad_cy));
  }
  const at::Tensor grads = at::cat(
      {change.mul(parts[2]).mul_(parts[0]).mul_(rests[0]),
       change.mul(wide(cx)).mul_(parts[1]).mul_(rests[1]),
       change.mul(parts[0]).mul_(parts[2].square().neg_().add_(1)),
       by_hidden.mul(squashed).mul_(parts[3]).mul_(rests[3])},
      1);
  const at::Tensor found = grads.to(workspace.scalar_type());
  return {
      found, change.mul_(parts[1]).to(cx.scalar_type()), has_bias ? found.sum(0) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
}

} // namespace

} // namespace fuse
