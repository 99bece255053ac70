"""Results' shapes and dtypes: inferred once for equal calls, and anew for any that differ."""

from __future__ import annotations

import pytest
import torch

from fuse.device import lazy
from tests.device.helpers import DEVICE
from tests.lanes import only_in

_library = torch.library.Library("fuse_inference_tests", "DEF")
_library.define("counted(Tensor x, int n) -> Tensor")
_library.impl("counted", lambda x, n: x.new_zeros(n), "CPU")
counted = torch.ops.fuse_inference_tests.counted


_asked: list[int] = []


def _meta(x: torch.Tensor, n: int) -> torch.Tensor:
    _asked.append(n)
    return x.new_empty(n)


_library.impl("counted", _meta, "Meta")


@pytest.mark.filterwarnings("ignore:.*runs on the host")
def test_equal_calls_are_inferred_once_and_others_anew():
    def calls() -> None:
        for number in range(3):
            x = torch.ones(5).to(DEVICE) * number
            assert counted(x, 3).shape == counted(x + 1, 3).shape == (3,)

    _asked.clear()
    calls()
    few = len(_asked)
    assert few > 0
    calls()
    assert len(_asked) == few
    for x, n in ((torch.ones(5), 4), (torch.ones(5, 1), 3), (torch.ones(5).double(), 3)):
        before = len(_asked)
        result = counted(x.to(DEVICE), n)
        assert (result.shape, result.dtype) == ((n,), x.dtype)
        assert len(_asked) > before


def test_a_call_that_fails_fails_again():
    x, y = torch.ones(3).to(DEVICE), torch.ones(4).to(DEVICE)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"The size of tensor a \(3\) must match"):
            x + y
    assert (x + 1).cpu().tolist() == [2, 2, 2]


def test_the_default_dtype_is_part_of_a_call():
    def dtypes(x: torch.Tensor) -> list[torch.dtype]:
        return [(x + 1.5).dtype, (x / 2).dtype, torch.sqrt(x).dtype, x.mul(2.5).dtype]

    x = torch.arange(3)
    for default in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(default)
        try:
            assert dtypes(x.to(DEVICE)) == dtypes(x) == [default] * 4
        finally:
            torch.set_default_dtype(torch.float32)


def test_what_out_is_decides_beside_shapes():
    def results(device: torch.device | str) -> list[object]:
        x, y = torch.ones(3, device=device), torch.full((3,), 2.0, device=device)
        own, empty = torch.zeros(3, device=device), torch.empty(0, device=device)
        part = torch.zeros(2, 3, device=device)
        torch.add(x, y, out=own)
        torch.add(x, y, out=empty)
        torch.add(x, y, out=part[1])
        torch.add(x, y, out=x)
        return [t.cpu().tolist() for t in (x, y, own, empty, part)]

    assert results(DEVICE) == results(DEVICE) == results("cpu")


@only_in("compiled", "accelerator", reason="reads what recording described")
def test_a_layer_met_again_is_described_with_its_own_values():
    def run(device: torch.device | str) -> list[float]:
        x = torch.arange(6.0, device=device).reshape(2, 3)
        weights = [torch.eye(3, device=device) * (n + 1) for n in range(4)]
        biases = [torch.full((3,), float(n), device=device) for n in range(4)]
        for weight, bias in zip(weights, biases, strict=True):
            x = torch.relu(torch.addmm(bias, x, weight)) + x
        for n, bias in enumerate(biases):
            bias.add_(x[0]).mul_(bias).sub_(biases[n - 1])
        return [x.cpu().tolist(), *(bias.cpu().tolist() for bias in biases)]

    described = lazy.engine().calls.described
    assert run(DEVICE) == run("cpu")
    before = len(described)
    assert run(DEVICE) == run("cpu")
    assert len(described) == before > 0


SCHEMAS = (
    "(Tensor x) -> Tensor",
    "(Tensor[] xs, int k) -> Tensor",
    "(Tensor(a!) x) -> ()",
    "(Tensor x, str how, int[] sizes) -> (Tensor, int)",
    "(float k, Tensor x) -> Tensor[]",
)


def _called(schema: str, round_: int, x: torch.Tensor) -> object:
    """Define an operator, call it and take it away again."""
    name = "fuse_inference_again::again"

    def add(x: torch.Tensor) -> None:
        x.add_(round_)

    bodies = {
        SCHEMAS[0]: (lambda x: x + round_, (x,)),
        SCHEMAS[1]: (lambda xs, k: xs[1] * k, ([x, x + 1], round_)),
        SCHEMAS[2]: (add, (x.clone(),)),
        SCHEMAS[3]: (lambda x, how, sizes: (x.view(sizes), len(how)), (x, "by" * round_, [2, 2])),
        SCHEMAS[4]: (lambda k, x: [x * k], (float(round_), x)),
    }
    body, arguments = bodies[schema]
    with torch.library._scoped_library("fuse_inference_again", "FRAGMENT") as library:
        library.define(f"again{schema}")
        library.impl("again", body, "CPU")
        operator = torch._C._get_operation_overload(name, "")
        found = [operator[0](*arguments) for _ in range(2)]
        return torch.utils._pytree.tree_map(
            lambda one: one.tolist() if isinstance(one, torch.Tensor) else one,
            (found, arguments[0]),
        )


@pytest.mark.filterwarnings("ignore:.*runs on the host", "ignore:.*Meta kernel")
def test_an_operator_that_is_defined_anew_is_another() -> None:
    for round_ in range(1, 4):
        for schema in SCHEMAS:
            wanted = _called(schema, round_, torch.arange(4.0))
            assert _called(schema, round_, torch.arange(4.0).to(DEVICE)) == wanted, schema
