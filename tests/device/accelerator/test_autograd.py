"""Autograd over the device: hooks on nodes, modes, and gradients that change device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd.graph import allow_mutation_on_saved_tensors, register_multi_grad_hook

from tests.device.accelerator.alike import leaf
from tests.device.helpers import DEVICE
from tests.programs.harness import compare_with_cpu


def test_gradients_come_back_to_the_device_and_dtype_of_their_leaf():
    def program(device):
        here, there = leaf(torch.device("cpu"), 3), leaf(device, 3)
        y = (here.to(device, torch.float64) * there).to(torch.float16).cpu()
        (y.float() * here).sum().backward()
        assert here.grad.device.type == "cpu" and there.grad.device.type == device.type
        return here.grad, there.grad

    compare_with_cpu(program)


def test_hooks_of_nodes_run_in_order_and_change_gradients():
    def program(device):
        seen: list[Any] = []
        x = leaf(device, 3)
        y = x.exp()
        z = y * 2
        y.register_hook(lambda grad: seen.append(("tensor", grad.clone())))
        before = y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
        y.grad_fn.register_hook(lambda inner, outer: seen.append((inner[0], outer[0])))
        removed = z.register_hook(lambda grad: grad * 100)
        removed.remove()
        z.sum().backward(retain_graph=True)
        first = x.grad.clone()
        before.remove()
        z.sum().backward()
        return seen, first, x.grad, y.grad_fn.name()

    compare_with_cpu(program)


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_hook_of_several_tensors(mode: Any):
    def program(device):
        seen: list[Any] = []
        x, y, unused = leaf(device, 2), leaf(device, 2), leaf(device, 2)
        handle = register_multi_grad_hook((x, y, unused), seen.append, mode=mode)
        (x * y).sum().backward()
        handle.remove()
        (x * y).sum().backward()
        return seen, x.grad, y.grad, unused.grad is None

    if mode == "any":  # which of the two comes first is autograd's order, alike on both
        compare_with_cpu(program, runs=2)
    else:
        compare_with_cpu(program)


def test_what_was_saved_may_be_written_to_where_a_program_says_so():
    def program(device):
        x = leaf(device, 3)
        with allow_mutation_on_saved_tensors():
            y = x.sin()
            z = y.square()
            y.mul_(5)
            z.sum().backward()
        return x.grad, y, z

    compare_with_cpu(program)


def test_what_is_asked_for_is_all_that_is_computed():
    def program(device):
        asked: list[Any] = []

        class Pair(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.set_materialize_grads(False)
                ctx.save_for_backward(x, y)
                return x * y, x + y

            @staticmethod
            def backward(ctx, product, total):
                asked.append((ctx.needs_input_grad, product is None, total is None))
                x, y = ctx.saved_tensors
                return product * y, product * x if ctx.needs_input_grad[1] else None

        x, y = leaf(device, 3), leaf(device, 3)
        Pair.apply(x, y.detach())[0].sum().backward()
        Pair.apply(x, y)[0].sum().backward(inputs=[y])
        grads = torch.autograd.grad(x.sum(), [x, y], materialize_grads=True)
        return asked, x.grad, y.grad, grads

    compare_with_cpu(program)


def test_many_gradients_in_one_pass():
    def program(device):
        x = leaf(device, 3)
        y = x.exp() * x.sum()
        rows = torch.autograd.grad(y, x, torch.eye(3, device=device), is_grads_batched=True)
        jacobian = torch.autograd.functional.jacobian(
            lambda x: x.exp() * x.sum(), x.detach(), vectorize=True
        )
        return rows, jacobian

    compare_with_cpu(program)


def test_modes_nest_and_tensors_tell_of_them():
    def program(device):
        x = leaf(device, 3)
        told: list[Any] = []
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = x * 2
            with torch.set_grad_enabled(True), torch.inference_mode():
                made = x * 2
        for one in (x, y, z, made, made.clone(), x[:1], x.detach()):
            told.append((one.requires_grad, one.is_leaf, one.is_inference(), one.grad_fn is None))
        y.mul_(2)
        y[0] = 1
        return told, y._version, y.detach()._version, z, made

    compare_with_cpu(program)


def test_a_gradient_lies_in_memory_as_on_the_cpu():
    def program(device):
        wide, cut = torch.randn(3, 4).to(device).t(), torch.randn(6).to(device)[::2]
        strides = []
        for x in (wide.requires_grad_(), cut.requires_grad_()):
            (x * x).sum().backward()
            first = x.grad
            (x * 2).sum().backward()
            strides.append((x.grad.stride(), first.data_ptr() == x.grad.data_ptr()))
        return strides, wide.grad, cut.grad

    compare_with_cpu(program)


def test_second_derivatives_pass_gradgradcheck():
    x, y = (torch.randn(2, 3, dtype=torch.float64).to(DEVICE).requires_grad_() for _ in range(2))
    assert torch.autograd.gradgradcheck(lambda x, y: (x @ y.t()).softmax(-1).tanh(), (x, y))
