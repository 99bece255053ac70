"""What the CPU refuses, of a dtype or for want of elements, the device refuses at the call.

Every operator meets every dtype and shape; where the CPU answers, others of the tests compare.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fuse
from fuse import config
from tests.lanes import only_in

CPU, DEVICE = torch.device("cpu"), torch.device("tpu")

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float32, torch.complex64]
SHAPES = [(2, 3), (0, 3), (2, 0), (0,), (), (80, 80)]


def first(x: Tensor) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=x.device)


OPERATORS: dict[str, Callable[[Tensor], object]] = {
    "linear": lambda x: F.linear(x, x.new_ones(4, x.size(-1))),
    "matmul": lambda x: x @ x.transpose(0, -1),
    "addmm": lambda x: torch.addmm(x.new_ones(()), x, x.t()),
    "bmm": lambda x: torch.bmm(x[None], x.transpose(0, -1)[None]),
    "mv": lambda x: torch.mv(x, x[0]),
    "dot": lambda x: torch.dot(x.flatten(), x.flatten()),
    "conv1d": lambda x: F.conv1d(x[None], x.new_ones(2, x.size(0), 1)),
    "argmax": lambda x: x.argmax(),
    "argmax of a dimension": lambda x: x.argmax(0),
    "argmin": lambda x: x.argmin(),
    "max": lambda x: x.max(),
    "max of a dimension": lambda x: x.max(0),
    "min of a dimension": lambda x: x.min(-1),
    "amax": lambda x: x.amax(),
    "amin of a dimension": lambda x: x.amin(0),
    "aminmax": lambda x: x.aminmax(),
    "mean": lambda x: x.mean(0),
    "prod": lambda x: x.prod(1),
    "var": lambda x: x.var(),
    "norm": lambda x: torch.linalg.vector_norm(x, float("inf")),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(2),
    "kthvalue": lambda x: x.kthvalue(2),
    "median": lambda x: x.median(),
    "median of a dimension": lambda x: x.median(0),
    "nanmedian": lambda x: x.nanmedian(),
    "mode": lambda x: x.mode(0),
    "softmax": lambda x: x.softmax(0),
    "glu": lambda x: F.glu(x, 0),
    "avg_pool1d": lambda x: F.avg_pool1d(x[None], 2),
    "index_fill": lambda x: x.index_fill(0, first(x), 1),
    "index_select": lambda x: x.index_select(0, first(x)),
    "index_add": lambda x: x.index_add(0, first(x), x.new_ones(1, *x.shape[1:])),
    "uniform_": lambda x: x.clone().uniform_(),
    "cross": lambda x: torch.linalg.cross(x, x),
    "floor": lambda x: x.floor(),
}


def error_of(call: Callable[[Tensor], object], x: Tensor) -> tuple[str, str] | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            call(x)
    except Exception as error:  # noqa: BLE001  which one is what is compared
        return type(error).__name__, str(error).splitlines()[0]
    return None


@pytest.mark.parametrize("backend", config.BACKENDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_what_the_cpu_refuses_is_refused_at_the_call(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    found, expected = {}, {}
    with fuse.FusedEager(backend=backend):
        for dtype in DTYPES:
            for shape in SHAPES:
                error = error_of(OPERATORS[name], torch.ones(shape, dtype=dtype))
                if error is not None:
                    expected[dtype, shape] = error
                    x = torch.ones(shape, dtype=dtype, device=DEVICE)
                    found[dtype, shape] = error_of(OPERATORS[name], x)
    assert expected, "the CPU refuses nothing"
    assert found == expected


def slices(count: int) -> list[slice]:
    return [slice(start, start + count * step, step) for start in range(4) for step in (1, 2)]


@only_in("compiled", "accelerator", reason="run uncompiled, the CPU's kernels refuse")
@pytest.mark.parametrize("count", (2, 4))
def test_writes_that_overlap_what_they_read_in_part(count: int) -> None:
    """Of every pair of slices, also with steps: refused as on the CPU, else as its values are."""
    for written, read in itertools.product(slices(count), slices(count)):
        results = []
        for device in ("cpu", DEVICE):
            x = torch.arange(12.0).to(device)
            try:
                x[written].add_(x[read])
                results.append(x.tolist() if _apart(written, read) else "")
            except RuntimeError as error:
                results.append(str(error).splitlines()[0])
        assert results[0] == results[1], (written, read)


def _apart(one: slice, other: slice) -> bool:
    """Whether no element is in both, or each in one place: else the order of writing counts."""
    places = [range(12)[part] for part in (one, other)]
    return places[0] == places[1] or not set(places[0]) & set(places[1])
