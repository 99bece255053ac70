"""Operations on lists of tensors are the CPU's, errors too, whichever way they are recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import fuse
from tests.device.helpers import DEVICE, run
from tests.lanes import only_in

CPU = torch.device("cpu")
Tensors = list[torch.Tensor]
SHAPES = ((3, 4), (5,), (), (2, 0), (1, 3, 2))


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.rand(shape, generator=generator) * 4 + 1).to(dtype) for shape in SHAPES]


f = torch
NUMBERS = [0.5, 1.5, 2.0, 3.0, 4.0]
CALLS: dict[str, Callable[[Tensors, Tensors, Tensors], Sequence[torch.Tensor] | None]] = {
    "add_ list": lambda x, y, z: f._foreach_add_(x, y, alpha=2.5),
    "add_ number": lambda x, y, z: f._foreach_add_(x, 1.5),
    "add_ integer": lambda x, y, z: f._foreach_add_(x, 2),
    "add": lambda x, y, z: f._foreach_add(x, y, alpha=-0.5),
    "mul_ list": lambda x, y, z: f._foreach_mul_(x, y),
    "mul_ number": lambda x, y, z: f._foreach_mul_(x, 0.9),
    "mul_ itself": lambda x, y, z: f._foreach_mul_(x, x),
    "div_ list": lambda x, y, z: f._foreach_div_(x, y),
    "div_ number": lambda x, y, z: f._foreach_div_(x, 3.0),
    "div_ numbers": lambda x, y, z: f._foreach_div_(x, NUMBERS),
    "lerp_": lambda x, y, z: f._foreach_lerp_(x, y, 0.3),
    "addcmul_": lambda x, y, z: f._foreach_addcmul_(x, y, z, 0.25),
    "addcdiv_": lambda x, y, z: f._foreach_addcdiv_(x, y, z, 0.25),
    "addcdiv_ numbers": lambda x, y, z: f._foreach_addcdiv_(x, y, z, NUMBERS),
    "sqrt": lambda x, y, z: f._foreach_sqrt(x),
}


def outcome(call: str, device: torch.device, *lists: Tensors) -> list[torch.Tensor] | str:
    """The lists afterwards and the results, or the first line of the error."""
    placed = [[tensor.clone().to(device) for tensor in one] for one in lists]
    try:
        results = CALLS[call](*placed)
    except (RuntimeError, TypeError) as error:
        return str(error).splitlines()[0].replace("tpu:0", "cpu")
    return [tensor.cpu() for one in [*placed, results or []] for tensor in one]


def check(call: str, *lists: Tensors) -> None:
    expected = outcome(call, CPU, *lists)
    for _ in range(3):  # the known stream too
        found = outcome(call, DEVICE, *lists)
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lists_of_like_tensors(call: str, dtype: torch.dtype):
    check(call, *(tensors(seed, dtype) for seed in range(3)))


@pytest.mark.parametrize("call", CALLS)
def test_integers(call: str):
    check(call, *(tensors(seed, torch.int64) for seed in range(3)))


@pytest.mark.parametrize("call", CALLS)
def test_tensors_of_another_dtype_or_shape_beside_them(call: str):
    x, y, z = (tensors(seed) for seed in range(3))
    check(call, x, [tensor.double() for tensor in y], z)
    check(call, x, [torch.ones(()) for _ in y], z)
    check(call, [torch.ones(1) for _ in x], y, z)


@pytest.mark.parametrize("call", CALLS)
def test_lists_that_do_not_fit(call: str):
    x, y, z = (tensors(seed) for seed in range(3))
    check(call, x, y[:-1], z)
    check(call, x[:-1], y, z)
    check(call, [], [], [])


def test_views_of_one_tensor_are_written_in_order():
    def written(device: torch.device) -> Any:
        whole = torch.arange(12.0, device=device)
        parts = [whole[:6], whole[6:], whole[:6]]
        torch._foreach_add_(parts, [whole[6:], whole[:6], whole[6:]])
        torch._foreach_mul_([whole, whole.view(3, 4).t()], 0.5)
        return whole.tolist()

    for _ in range(3):
        assert written(DEVICE) == written(CPU)


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_a_changing_number_makes_nothing_new():
    x = [tensor.to(DEVICE) for tensor in tensors(0)]
    for step in range(6):
        torch._foreach_mul_(x, 1 + 1 / (step + 1))
        torch._foreach_addcdiv_(x, x, x, [1 / (step + 2) + k for k in range(len(x))])
        torch.tpu.synchronize()
        if step == 2:
            before = fuse.stats()["compiles"]
    assert fuse.stats()["compiles"] == before


def test_what_autograd_saved_is_known_to_have_changed():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    middle = x * 2
    out = middle.exp() * middle
    with torch.no_grad():
        torch._foreach_add_([middle], 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_lists_on_two_devices_are_refused():
    code = (
        "import torch\n"
        "x, y = (torch.ones(3, device=f'tpu:{index}') for index in range(2))\n"
        "try:\n"
        "    torch._foreach_add_([x], [y])\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    said = run(code, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert "found at least two devices, tpu:0 and tpu:1" in said
