"""``out=`` tensors: what is resized, where it lies in memory, and what it must not overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuse
from tests.device.helpers import recorder

DEVICE = torch.device("tpu")
CPU = torch.device("cpu")

_library = torch.library.Library("fuse_tests", "FRAGMENT")
_library.define("host_out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
_library.impl("host_out", lambda x, out: out.resize_(x.shape).copy_(x), "CPU")


def empty(device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=device)


WRITERS: dict[str, Callable[..., Any]] = {
    "recorded": lambda x, out: torch.add(x, 1, out=out),
    "on the host": lambda x, out: torch.ops.fuse_tests.host_out(x + 1, out=out),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("start", "length"), [(0, 3), (4, 3), (4, 9)])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
def test_an_out_resized_inside_a_larger_storage_keeps_the_rest(
    monkeypatch: pytest.MonkeyPatch, writer: str, start: int, length: int
):
    """The rest of the storage keeps its values, also where the storage has to grow."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")

    def run(device: torch.device) -> tuple[list[float], torch.Tensor, int]:
        base = torch.arange(10.0).to(device)
        out = base[start : start + 1]
        WRITERS[writer](torch.ones(length).to(device), out)
        return base.tolist(), out.cpu(), out.storage_offset()

    expected, found = run(CPU), run(DEVICE)
    assert found[0] == expected[0] and found[2] == expected[2]
    assert torch.equal(found[1], torch.full((length,), 2.0))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
def test_resized_outs_at_moving_offsets():
    for start in (2, 5, 7):
        base = torch.zeros(10, device=DEVICE)
        torch.add(torch.ones(2, device=DEVICE), 1, out=base[start : start + 1])
        assert base.nonzero().flatten().tolist() == [start, start + 1]


def transposed(device: torch.device) -> torch.Tensor:
    return torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(0)).to(device).mT


def square(device: torch.device) -> torch.Tensor:
    matrix = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    return (matrix @ matrix.T + torch.eye(4)).to(device)


def least_squares(device: torch.device, rows: int) -> Any:
    a = torch.rand(2, rows, 3, generator=torch.Generator().manual_seed(0)).to(device)
    outs = (empty(device), empty(device), empty(device, torch.int64), empty(device))
    return torch.linalg.lstsq(a, torch.ones(2, rows, 2).to(device), out=outs)


STRIDES: dict[str, Callable[[torch.device], Any]] = {
    "add": lambda d: torch.add(transposed(d), 1, out=empty(d)),
    "add of two layouts": lambda d: torch.add(
        transposed(d), torch.ones(3, 4, 5).to(d), out=empty(d)
    ),
    "where": lambda d: torch.where(transposed(d) > 0, transposed(d), transposed(d), out=empty(d)),
    "floor_divide": lambda d: torch.floor_divide(transposed(d), transposed(d), out=empty(d)),
    "hardshrink": lambda d: torch.ops.aten.hardshrink.out(transposed(d), out=empty(d)),
    "complex": lambda d: torch.complex(transposed(d), transposed(d), out=empty(d, torch.complex64)),
    "polar": lambda d: torch.polar(transposed(d), transposed(d), out=empty(d, torch.complex64)),
    "mvlgamma": lambda d: torch.mvlgamma(transposed(d) + 1, 2, out=empty(d)),
    "sum": lambda d: torch.sum(transposed(d), 0, out=empty(d)),
    "powers of a number": lambda d: torch.pow(2, transposed(d)),
    "powers of a number, out": lambda d: torch.pow(2, transposed(d), out=empty(d)),
    "out resized": lambda d: torch.mul(transposed(d), 2, out=torch.ones(5, device=d)),
    "out of a condition resized": lambda d: torch.lt(
        transposed(d), 0.5, out=torch.ones(2, 2, dtype=torch.bool, device=d)
    ),
    "out of a sum resized": lambda d: torch.sum(transposed(d), 1, out=torch.ones(7, device=d)),
    "cat": lambda d: torch.cat([transposed(d), transposed(d)], out=empty(d)),
    "qr": lambda d: torch.linalg.qr(square(d), out=(empty(d), empty(d))),
    "eigh": lambda d: torch.linalg.eigh(square(d), out=(empty(d), empty(d))),
    "cholesky_inverse": lambda d: torch.cholesky_inverse(square(d), out=empty(d)),
    "ifft": lambda d: torch.fft.ifft(transposed(d), dim=1, out=empty(d, torch.complex64)),
    "lstsq": lambda d: least_squares(d, 3),
    "lstsq of taller columns": lambda d: least_squares(d, 5),
    "rfftn": lambda d: torch.fft.rfftn(transposed(d)),
    "max_unpool2d": lambda d: torch.nn.functional.max_unpool2d(
        torch.ones(1, 2, 1, 1).to(d),
        torch.tensor([0, 3]).reshape(1, 2, 1, 1).to(d).to(memory_format=torch.channels_last),
        2,
    ),
}


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
def test_results_lie_in_memory_as_on_the_cpu(name: str):
    found, expected = STRIDES[name](DEVICE), STRIDES[name](CPU)
    found, expected = ([r] if isinstance(r, torch.Tensor) else list(r) for r in (found, expected))
    assert [t.stride() for t in found] == [t.stride() for t in expected]


OVERLAPS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "gather": lambda x, i: torch.gather(x, 0, i, out=x),
    "index_select": lambda x, i: torch.index_select(x, 0, i, out=x),
    "take": lambda x, i: torch.take(x, i, out=x),
    "scatter_": lambda x, i: x.scatter_(0, i, x),
    "index_add_": lambda x, i: x.index_add_(0, i, x),
    "cat": lambda x, i: torch.cat([x[1:], x[:1]], out=x),
    "cat with what it resizes": lambda x, i: torch.cat([e := x.new_empty(0), x], out=e),
    "masked_select": lambda x, i: torch.masked_select(x, x > 0, out=x),
    "an index resized onto another": lambda x, i: torch.gather(i, 0, i[1:], out=i[:1]),
}


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
def test_operators_that_move_elements_do_not_write_what_they_read(name: str):
    for device in (CPU, DEVICE):
        x, index = torch.arange(3.0).to(device), torch.tensor([2, 1, 0]).to(device)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            OVERLAPS[name](x, index)
        assert x.tolist() == [0, 1, 2]


UPDATES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index_add_": lambda x, i, y: x.index_add_(0, i, y),
    "index_copy_": lambda x, i, y: x.index_copy_(0, i, y),
    "index_fill_": lambda x, i, y: x.index_fill_(0, i, 5.0),
    "index_put_": lambda x, i, y: x.index_put_((i,), y, accumulate=True),
    "index_reduce_": lambda x, i, y: x.index_reduce_(0, i, y, "amax"),
    "put_": lambda x, i, y: x.put_(i, y),
    "scatter_": lambda x, i, y: x.scatter_(0, i, y),
    "scatter_add_": lambda x, i, y: x.scatter_add_(0, i, y),
    "scatter_reduce_": lambda x, i, y: x.scatter_reduce_(0, i, y, "amax"),
    "masked_scatter_": lambda x, i, y: x.masked_scatter_(x > 0, y),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning")
def test_updates_in_place_run_natively(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")

    def run(device: torch.device) -> list[float]:
        x, index = torch.arange(3.0).to(device), torch.tensor([2, 0]).to(device)
        return UPDATES[name](x, index, torch.tensor([7.0, 8.0]).to(device)).tolist()

    assert run(DEVICE) == run(CPU)


def test_out_of_another_dtype_takes_what_converts_to_it():
    before = sum(fuse.stats()["host_fallbacks"].values())
    x = torch.tensor([1.5, 2.5]).to(DEVICE)
    for tier in (None, "compiled"):
        with recorder(tier=tier):
            assert torch.add(x, 1, out=empty(DEVICE, torch.float64)).tolist() == [2.5, 3.5]
            assert torch.cumsum(x, 0, out=empty(DEVICE, torch.float64)).tolist() == [1.5, 4.0]
            assert torch.argmax(x, 0, out=empty(DEVICE, torch.int64)).item() == 1
    assert sum(fuse.stats()["host_fallbacks"].values()) == before


def test_pointwise_operators_may_write_what_they_read():
    x = torch.arange(3.0, device=DEVICE)
    assert torch.add(x, x, out=x).tolist() == [0, 2, 4]


def test_nothing_shares_no_memory(monkeypatch: pytest.MonkeyPatch):
    """Where there are no elements a stride of zero is no overlap."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    out = torch.empty_strided((0, 3), (1, 0), dtype=torch.int64, device=DEVICE)
    torch.nonzero(torch.zeros(5, 5, 5, device=DEVICE), out=out)
    assert out.tolist() == []


def test_shuffling_no_channels_shares_memory():
    x = torch.ones(0, 4, 2, 2, device=DEVICE)
    shuffled = torch.nn.functional.channel_shuffle(x, 2)
    assert shuffled.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    y = torch.arange(4.0).reshape(1, 4, 1, 1).to(DEVICE)
    assert torch.nn.functional.channel_shuffle(y, 2).flatten().tolist() == [0, 2, 1, 3]


def test_mode_into_given_tensors():
    x = torch.tensor([[1.0, 2.0, 2.0]]).to(DEVICE)
    values, indices = torch.mode(x, out=(empty(DEVICE), empty(DEVICE, torch.int64)))
    assert values.tolist() == [2] and indices.tolist() == [2]


def test_splitting_at_places_that_live_on_the_device():
    places = torch.tensor([1, 3]).to(DEVICE)
    x = torch.arange(4.0, device=DEVICE).requires_grad_()
    parts = torch.tensor_split(x, places)
    assert [part.tolist() for part in parts] == [[0], [1, 2], [3]]
    assert parts[1]._base is x and parts[1].storage_offset() == 1
    parts[1].sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 1, 1, 0]
