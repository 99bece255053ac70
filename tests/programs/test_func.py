"""``torch.func`` and the other function transforms."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vjp, vmap

from tests.programs.harness import compare_with_cpu

pytestmark = pytest.mark.usefixtures("mode")


def vector(device: torch.device, n: int = 3) -> torch.Tensor:
    return torch.linspace(0.1, 1.0, n).to(device)


def test_grad_of_grad():
    def program(device):
        def f(x):
            return (x.sin() * x**2).sum()

        x = vector(device)
        return grad(f)(x), grad(lambda x: grad(f)(x).sum())(x)

    compare_with_cpu(program)


def test_vmap_over_samples():
    def program(device):
        weight, x = torch.randn(2, 3).to(device), torch.randn(5, 3).to(device)
        y = vmap(lambda row: (weight @ row).tanh().sum())(x)
        pairs = vmap(vmap(torch.dot, (None, 0)), (0, None))(x, x)
        return y, pairs, vmap(lambda row: row.cumsum(0).flip(0), in_dims=1, out_dims=1)(x)

    compare_with_cpu(program)


def test_gradients_for_each_sample():
    def program(device):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(device)
        parameters = dict(model.named_parameters())
        x, y = torch.randn(5, 3).to(device), torch.randn(5, 1).to(device)

        def loss(parameters, x, y):
            return (functional_call(model, parameters, (x[None],)) - y).square().sum()

        return vmap(grad(loss), (None, 0, 0))({k: p.detach() for k, p in parameters.items()}, x, y)

    compare_with_cpu(program)


def test_jvp_vjp_and_jacobians():
    def program(device):
        def f(x):
            return torch.stack([x.prod(), (x**2).sum(), x[0] * x[-1]])

        x = vector(device)
        value, tangent = jvp(f, (x,), (torch.ones_like(x),))
        again, pull = vjp(f, x)
        return value, tangent, again, pull(torch.ones_like(again))[0], jacrev(f)(x)

    compare_with_cpu(program)


def test_hessian():
    def program(device):
        return hessian(lambda x: (x.exp() * x.flip(0)).sum())(vector(device))

    compare_with_cpu(program)


def test_an_ensemble_by_stacked_state():
    def program(device):
        models = [nn.Linear(3, 2).to(device) for _ in range(3)]
        parameters, buffers = stack_module_state(models)
        x = torch.randn(4, 3).to(device)

        def call(parameters, buffers, x):
            return functional_call(models[0], (parameters, buffers), (x,))

        return vmap(call, (0, 0, None))(parameters, buffers, x)

    compare_with_cpu(program)


def test_random_numbers_inside_vmap():
    def program(device):
        x = torch.ones(4, 3, device=device)
        same = vmap(lambda row: row * torch.rand(3, device=device), randomness="same")(x)
        return same.shape, (same[0] == same[1]).all(), (same >= 0).all()

    compare_with_cpu(program)
