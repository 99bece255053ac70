"""Operators whose shapes PyTorch does not infer stay on the device, and agree with the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.trace.meta_out import TABLE

DEVICE, CPU = torch.device("tpu"), torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_on_the_host() -> Iterator[None]:
    before = dict(fuse.stats()["host_fallbacks"])
    yield
    assert fuse.stats()["host_fallbacks"] == before


def r(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) - 0.25


def check(function: Callable[..., Any], *operands: torch.Tensor, **options: Any) -> None:
    """Values, shapes, dtypes and strides of every result."""
    expected = function(*operands, **options)
    found = function(*(operand.to(DEVICE) for operand in operands), **options)
    pairs = [(found, expected)]
    if not isinstance(expected, torch.Tensor):
        pairs = list(zip(found, expected, strict=True))
    for one, other in pairs:
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)
        assert one.stride() == other.stride() or not other.numel()


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (0, 3)])
def test_reflections(shape: tuple[int, ...]) -> None:
    check(torch.geqrf, r(*shape))


def test_resampling_of_an_empty_batch() -> None:
    for mode in ("nearest", "nearest-exact"):
        check(lambda x: F.interpolate(x, size=7, mode=mode), r(0, 2, 5))  # noqa: B023
        check(lambda x: F.interpolate(x, size=(7, 3), mode=mode), r(0, 2, 5, 4))  # noqa: B023


def outs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]]:
    aten = torch.ops.aten
    one = torch.tensor(1.0)
    eights = r(4, 16).to(torch.float8_e4m3fn), r(16, 16).to(torch.float8_e4m3fn).t()
    scales = ([one], [0], [0], [one], [0], [0], None, torch.float32)
    return {
        "_logcumsumexp.out": (aten._logcumsumexp, (r(3, 4), 1), "out"),
        "_native_batch_norm_legit.no_stats_out": (
            aten._native_batch_norm_legit.no_stats_out,
            (r(3, 4, 2), None, None, True, 0.1, 1e-5),
            "out save_mean save_invstd",
        ),
        "_scaled_mm.out": (aten._scaled_mm, (*eights, one, one, None, None, torch.float32), "out"),
        "_scaled_mm_v2.out": (aten._scaled_mm_v2, (*eights, *scales), "out"),
        "geqrf.a": (aten.geqrf, (r(5, 3),), "a tau"),
    }


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
def test_out_of_operators_without_inference(name: str) -> None:
    function, arguments, names = outs()[name]
    results = []
    for device in (CPU, DEVICE):
        given = {key: torch.empty(0, device=device) for key in names.split()}
        placed = torch.utils._pytree.tree_map_only(
            torch.Tensor,
            lambda t: t.to(device),  # noqa: B023
            arguments,
        )
        function(*placed, **given)
        results.append(list(given.values()))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_parts_of_complex_numbers_go_where_out_says() -> None:
    for function in (torch.complex, torch.polar):
        out = torch.empty(3, dtype=torch.complex64, device=DEVICE)
        function(r(3).to(DEVICE), r(3).to(DEVICE) + 1, out=out)
        torch.testing.assert_close(out.cpu(), function(r(3), r(3) + 1))


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
def test_least_squares(shape: tuple[int, ...], driver: str | None) -> None:
    for columns in ((2,), ()):
        check(torch.linalg.lstsq, r(*shape), r(*shape[:-1], *columns), driver=driver)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize(
    "batches", [((1,), (2,)), ((2,), (1,)), ((2, 1), (1, 3)), ((1, 1), (2, 2))]
)
def test_least_squares_of_batches_that_broadcast(
    batches: tuple[tuple[int, ...], tuple[int, ...]], driver: str
) -> None:
    for rows, columns in ((3, 3), (4, 2), (2, 4)):
        one, other = r(*batches[0], rows, columns), r(*batches[1], rows, 2)
        check(torch.linalg.lstsq, one, other, driver=driver)
    for d in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match=r"input.size\(-2\) should match other.size\(-2\)"):
            torch.linalg.lstsq(r(2, 3, 2).to(d), r(2, 4, 2).to(d))


def test_least_squares_of_low_rank() -> None:
    low = r(5, 1) @ r(1, 3)
    check(torch.linalg.lstsq, low, r(5, 2), driver="gelsd")
    check(torch.linalg.lstsq, low, r(5, 2), driver="gelsy")
    check(torch.linalg.lstsq, r(4, 0), r(4, 2))


def test_the_gradient_of_least_squares() -> None:
    gradients = []
    for device in (CPU, DEVICE):
        a, b = (t.to(device).requires_grad_() for t in (r(5, 3), r(5, 2)))
        torch.linalg.lstsq(a, b).solution.square().sum().backward()
        assert a.grad is not None and b.grad is not None
        gradients.append((a.grad.cpu(), b.grad.cpu()))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("a", "b", "driver"),
    [
        (r(3), r(3), None),
        (r(3, 2), r(4, 2), None),
        (r(3, 2), r(4), None),
        (r(2, 3, 2), r(3), None),
        (r(3, 2), r(3, 2).double(), None),
        (r(3, 2).long(), r(3, 2).long(), None),
        (r(3, 2), r(3, 2), "best"),
    ],
)
def test_what_least_squares_refuses(a: torch.Tensor, b: torch.Tensor, driver: str | None) -> None:
    messages = []
    for device in (CPU, DEVICE):
        with pytest.raises(RuntimeError) as caught:
            torch.linalg.lstsq(a.to(device), b.to(device), driver=driver)
        messages.append(str(caught.value).splitlines()[0])
    assert messages[0] == messages[1]


def test_factories_of_any_dtype_stay_on_the_device() -> None:
    assert torch.arange(3, dtype=torch.float32, device=DEVICE).tolist() == [0.0, 1.0, 2.0]
    assert torch.eye(2, dtype=torch.int64, device=DEVICE).tolist() == [[1, 0], [0, 1]]
