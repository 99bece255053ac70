"""What autograd refuses: on the device as on the CPU, and across the two."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.device.accelerator.alike import assert_same_error, leaf
from tests.device.helpers import DEVICE


def inference(device: torch.device) -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3, device=device)


def twice(device: torch.device) -> None:
    y = leaf(device, 3).exp().sum()
    y.backward()
    y.backward()


def view_without_grad(device: torch.device) -> None:
    x = leaf(device, 3)
    with torch.no_grad():
        view = x.clone().requires_grad_()[:2]
    view.requires_grad_().mul_(2)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * 2


def differentiate_twice(device: torch.device) -> None:
    x = leaf(device, 2)
    (grad,) = torch.autograd.grad((Once.apply(x) * x).sum(), x, create_graph=True)
    grad.sum().backward()


ERRORS: dict[str, tuple[Callable[[torch.device], object], str]] = {
    "a tensor of inference mode is saved": (
        lambda device: inference(device) * leaf(device, 3),
        "Inference tensors cannot be saved for backward",
    ),
    "a tensor of inference mode is written to": (
        lambda device: inference(device).add_(1),
        "Inplace update to inference tensor outside InferenceMode",
    ),
    "a tensor of inference mode asks for a gradient": (
        lambda device: inference(device).requires_grad_(),
        "Setting requires_grad=True on inference tensor",
    ),
    "a leaf is written to": (lambda device: leaf(device, 3).mul_(2), "a leaf Variable that"),
    "a view of a leaf is": (lambda device: leaf(device, 3)[:2].mul_(2), "a view of a leaf Var"),
    "a view of no_grad is": (view_without_grad, "A view was created in no_grad mode"),
    "one of several views is": (
        lambda device: leaf(device, 4).clone().split(2)[0].mul_(2),
        "is the output of a function that returns multiple views",
    ),
    "a graph is used twice": (twice, "Trying to backward through the graph a second time"),
    "a gradient is asked of a vector": (
        lambda device: leaf(device, 3).exp().backward(),
        "grad can be implicitly created only for scalar outputs",
    ),
    "a gradient has another shape": (
        lambda device: leaf(device, 3).exp().backward(torch.ones(2, device=device)),
        "Mismatch in shape: grad_output[0]",
    ),
    "a tensor is not in the graph": (
        lambda device: torch.autograd.grad(leaf(device, 3).sum(), leaf(device, 3)),
        "appears to not have been used in the graph",
    ),
    "nothing asks for a gradient": (
        lambda device: torch.ones(3, device=device).sum().backward(),
        "does not require grad and does not have a grad_fn",
    ),
    "integers ask for one": (
        lambda device: torch.ones(3, device=device, dtype=torch.long).requires_grad_(),
        "only Tensors of floating point dtype can require gradients",
    ),
    "a derivative has none itself": (differentiate_twice, "marked with @once_differentiable"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_autograd_refuses_it_refuses_as_on_the_cpu(name: str):
    assert_same_error(*ERRORS[name])


def test_a_gradient_of_another_device_is_refused():
    x = leaf(DEVICE, 3)
    with pytest.raises(RuntimeError, match="device type 'cpu' to a tensor with device type 'tpu'"):
        x.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="expected device tpu:0 but got cpu"):
        x.exp().backward(torch.ones(3))
    assert x.grad is None
