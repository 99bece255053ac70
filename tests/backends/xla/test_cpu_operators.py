"""PyTorch's kernels for whole operators in XLA's programs: the CPU's results, however split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
import torch

from fuse.backends.xla.cpu import kernels, operators
from fuse.trace.functional import find_overload
from fuse.trace.spec import TensorSpec
from tests.device.helpers import DEVICE
from tests.lanes import only_in

SHAPE = (48, 40, 64)
SHAPES = (SHAPE, (12, 3, 1, 50, 70), (operators.FEWEST,))
ARGUMENTS: dict[str, dict[str, Any]] = {
    "fmod.Scalar": {"other": 0.7},
    "kthvalue": {"k": 3},
    "remainder.Scalar": {"other": 3},
    "sort.stable": {"stable": True, "descending": True},
    "topk": {"k": 5, "largest": False},
}
ALONG = {name for name, split in operators.TABLE.items() if split == "rows"}


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    kernels.register()


def tensor(dtype: torch.dtype, shape: Sequence[int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randint(-9, 9, tuple(shape), generator=generator).to(dtype)
    x = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
    x.view(-1)[::1001] = torch.nan
    return x.to(dtype)


def arguments(target: str, dtype: torch.dtype, shape: Sequence[int], dim: int) -> dict[str, Any]:
    schema = find_overload(target)._schema
    given: dict[str, Any] = {"self": tensor(dtype, shape, 0)}
    for argument in schema.arguments:
        if argument.name == "other" and "Tensor" in str(argument.type):
            given["other"] = tensor(dtype, shape, 1) + (not dtype.is_floating_point) * 20
    given |= ARGUMENTS.get(target, {})
    return given | ({"dim": dim} if target in ALONG else {})


def found(target: str, given: dict[str, Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What the CPU makes, and the call in a program of XLA's."""
    wanted = find_overload(target)(**given)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    specs = [TensorSpec(str(one.dtype)[6:], tuple(one.shape)) for one in wanted]
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}

    def program(arrays: dict[str, jax.Array]) -> list[jax.Array]:
        made = operators.results(target, specs, [], given | arrays)
        assert made is not None
        return made

    with jax.enable_x64(True):
        made = jax.jit(program)({name: value.numpy() for name, value in tensors.items()})
        return wanted, [torch.from_numpy(np.array(one)) for one in made]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("target", operators.TABLE)
def test_the_results_are_those_of_the_cpu(target: str, dtype: torch.dtype) -> None:
    """Rows have its bits. What is split anywhere may end with fewer elements than a vector has,
    which PyTorch computes one by one, as its own threads do."""
    exact = {"rtol": 0, "atol": 0} if target in ALONG else {}
    if "log" in target and not dtype.is_floating_point:
        with pytest.raises(RuntimeError, match="not implemented"):
            find_overload(target)(tensor(dtype, SHAPE, 0), 0)
        return
    for shape in SHAPES:
        for dim in {0, len(shape) - 1, len(shape) - 2} & set(range(len(shape))):
            wanted, made = found(target, arguments(target, dtype, shape, dim))
            for one, other in zip(wanted, made, strict=True):
                assert one.dtype == other.dtype
                torch.testing.assert_close(other, one, equal_nan=True, **exact)


def test_every_entry_has_an_overload_that_writes() -> None:
    for target in operators.TABLE:
        assert operators._writing(target).name == find_overload(target)._schema.name


def test_what_cannot_be_said_is_left_to_xla() -> None:
    spec = [TensorSpec("float32", SHAPE)]
    x = jax.numpy.zeros(SHAPE)
    few = [TensorSpec("float32", (8,))]
    assert operators.results("fmod.Scalar", spec, [x, x[0, 0, 0]], {}) is None
    assert operators.results("atan2", spec, [x, x[0]], {}) is None
    assert operators.results("tan", few, [jax.numpy.zeros(8)], {}) is None
    assert operators.results("exp", spec, [x], {}) is None
    odd = [TensorSpec("uint16", SHAPE)]
    assert operators.results("cumsum", odd, [x.astype("uint16"), 0], {}) is None


def test_a_call_that_the_kernel_refuses_is_an_error_that_says_so() -> None:
    spec = [TensorSpec("float32", SHAPE), TensorSpec("int64", SHAPE)]

    def program(x: jax.Array) -> Any:
        return operators.results("sort", spec, [x], {"dim": 7})

    with pytest.raises(jax.errors.JaxRuntimeError, match="Dimension out of range"):
        jax.block_until_ready(jax.jit(program)(jax.numpy.zeros(SHAPE)))


@only_in("compiled", reason="says what a compiled program is")
def test_a_program_of_the_device_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    own = kernels.call

    def call(target: str, *values: Any, **more: Any) -> Any:
        called.append(more.get("name", target))
        return own(target, *values, **more)

    monkeypatch.setattr(kernels, "call", call)
    x = tensor(torch.float32, (2, operators.FEWEST + 3), 5)
    y = x.to(DEVICE)
    for _ in range(6):
        values, order = (y * 2).sort(1)
        sums = values[:, :8000].cumsum(0).tan() + 1
    wanted, wanted_order = (x * 2).sort(1)
    torch.testing.assert_close(values.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(order.cpu(), wanted_order)
    torch.testing.assert_close(sums.cpu(), wanted[:, :8000].cumsum(0).tan() + 1, equal_nan=True)
    assert {"aten::sort", "aten::cumsum"} <= set(called) and "aten::tan" in called
    assert torch.equal(
        torch.randperm(40_000, device=DEVICE).sort().values.cpu(), torch.arange(40_000)
    )
