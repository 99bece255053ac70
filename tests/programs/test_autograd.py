"""What autograd does above the device: custom functions, hooks, double backward, checkpoints."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.programs.harness import DEVICE, compare_with_cpu

pytestmark = pytest.mark.usefixtures("mode")


class Cube(torch.autograd.Function):
    """Saves its input and its output, and writes neither."""

    @staticmethod
    def forward(ctx, x, scale):
        y = x * x * x * scale
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * 3 * x * x * ctx.scale + 0 * y, None


class ScaleInPlace(torch.autograd.Function):
    """Marks its input as dirty and returns it."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def leaf(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(*shape).to(device).requires_grad_()


def test_custom_functions():
    def program(device):
        x = leaf(device, 3)
        y = ScaleInPlace.apply(x * 1.5)
        Cube.apply(y, 0.5).sum().backward()
        return y, x.grad

    compare_with_cpu(program)


def test_retain_graph_accumulates():
    def program(device):
        x = leaf(device, 3)
        loss = (x.exp() * x).sum()
        loss.backward(retain_graph=True)
        first = x.grad.clone()
        loss.backward()
        return first, x.grad

    compare_with_cpu(program)


def test_double_backward_and_a_gradient_penalty():
    def program(device):
        net = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1)).to(device)
        x = leaf(device, 2, 3)
        (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        penalty = (gradient.norm(dim=1) - 1).square().mean()
        penalty.backward()
        third = torch.autograd.grad(
            torch.autograd.grad((x**4).sum(), x, create_graph=True)[0].sum(), x
        )
        return gradient, penalty, [p.grad for p in net.parameters()], third

    compare_with_cpu(program)


def test_hooks_on_tensors_modules_and_accumulation():
    def program(device):
        seen = []
        model = nn.Linear(2, 2).to(device)
        model.register_forward_hook(lambda m, args, out: out * 2)
        model.register_full_backward_hook(lambda m, gin, gout: seen.append(gout[0].clone()))

        def halve(parameter: torch.Tensor) -> None:
            parameter.grad.mul_(0.5)

        model.weight.register_post_accumulate_grad_hook(halve)
        x = leaf(device, 3, 2)
        x.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        y = model(x)
        y.retain_grad()
        y.square().sum().backward()
        return y.grad, x.grad, model.weight.grad, model.bias.grad, seen

    compare_with_cpu(program)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool):
    def program(device):
        block = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.0), nn.Linear(3, 3))
        block.to(device)
        x = leaf(device, 2, 3)
        y = checkpoint(block, x, use_reentrant=reentrant)
        y.square().sum().backward()
        return y, x.grad, block[0].weight.grad

    compare_with_cpu(program)


def test_checkpointing_repeats_the_random_numbers():
    """The recomputation draws what the first pass drew: a gradient is 0 exactly where y is."""
    drop = nn.Dropout(0.5)
    for use_reentrant in (False, True):
        x = torch.ones(64, device=DEVICE, requires_grad=True)
        y = checkpoint(lambda x: drop(x * 1.0), x, use_reentrant=use_reentrant)
        y.sum().backward()
        torch.testing.assert_close(x.grad.cpu(), y.detach().cpu())
        assert 0 < (y == 0).sum().item() < 64


def test_saved_tensors_are_checked_for_writes():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x * 2
    z = y.exp()
    z.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_saved_tensor_hooks_offload_to_the_host():
    def program(device):
        x = leaf(device, 3)
        with torch.autograd.graph.save_on_cpu():
            y = (x.sin() * x).sum()
        y.backward()
        return y, x.grad

    compare_with_cpu(program)


def test_functional_derivatives():
    def program(device):
        def f(x):
            return (x**3).sum()

        def g(x):
            return torch.stack([x[0] * x[1], x.sum()])

        x = torch.tensor([1.0, 2.0]).to(device)
        return (
            torch.autograd.functional.hessian(f, x),
            torch.autograd.functional.jacobian(g, x),
            torch.autograd.functional.vjp(f, x),
            torch.autograd.functional.hvp(f, x, torch.ones_like(x)),
        )

    compare_with_cpu(program)


def test_forward_mode():
    def program(device):
        x, tangent = torch.randn(3).to(device), torch.ones(3, device=device)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            y = torch.autograd.forward_ad.unpack_dual(dual.sin() * dual)
            return y.primal, y.tangent

    compare_with_cpu(program)


def test_no_grad_inference_and_anomaly_modes():
    def program(device):
        x = leaf(device, 3)
        with torch.no_grad():
            x.mul_(2)
        with torch.inference_mode():
            y = x * 3
            y.add_(1)
        with torch.autograd.detect_anomaly(check_nan=True), torch.enable_grad():
            (x * 2).sum().backward()
        return x, y, x.grad

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        compare_with_cpu(program)


def test_gradients_of_views_accumulate_in_place():
    def program(device):
        x = leaf(device, 4)
        for part in (x[:2], x[1:3], x[::2]):
            (part * part).sum().backward()
        x.grad.data.clamp_(max=1.0)
        grad = x.grad
        x.grad = None
        x.sum().backward()
        return grad, x.grad

    compare_with_cpu(program)


def test_an_expression_in_float64_passes_gradcheck():
    x = torch.randn(3, dtype=torch.float64).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: (x.sin() * x).sum(), x)


def test_graphs_are_freed():
    """Nothing in the recorder keeps a tensor of a finished step alive."""
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = (x * 2).exp()
    watch = weakref.ref(y)
    y.sum().backward()
    del y
    gc.collect()
    assert watch() is None


def test_weight_norm_and_parametrisations():
    def program(device):
        model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).to(device)
        tied = nn.utils.parametrizations.orthogonal(
            nn.Linear(2, 2, bias=False), orthogonal_map="householder"
        )
        del tied
        x = torch.randn(4, 3).to(device)
        model(x).square().mean().backward()
        return [p.grad for p in model.parameters()]

    compare_with_cpu(program)
