"""Numbers that do not fit the dtype they are converted to: PyTorch's error, not another number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fuse
from fuse import versions
from tests.device.helpers import DEVICE
from tests.lanes import only_in

CPU = torch.device("cpu")
Call = Callable[[torch.Tensor, Any], torch.Tensor]


def assigned(x: torch.Tensor, index: Any, number: Any) -> torch.Tensor:
    x[index] = number
    return x


def first(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0, 1]).to(x.device)


CONVERTING: dict[str, Call] = {
    "fill_": lambda x, n: x.fill_(n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype, device=x.device),
    "full_like": torch.full_like,
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "masked_fill_": lambda x, n: x.masked_fill_(x > 1, n),
    "index_fill": lambda x, n: x.index_fill(0, first(x), n),
    "scatter": lambda x, n: x.scatter(0, first(x), n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "threshold": lambda x, n: F.threshold(x, 2, n),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp_min": lambda x, n: x.clamp(min=n),
    "assigned to one": lambda x, n: assigned(x, 0, n),
    "assigned to a slice": lambda x, n: assigned(x, slice(0, 2), n),
    "assigned to a mask": lambda x, n: assigned(x, x > 1, n),
    "assigned to indices": lambda x, n: assigned(x, first(x), n),
}
NUMBERS = (-1, 255, 300, -300, -1.0, 2.5, 70000, -1e9, 1e300, float("inf"), float("nan"))
DTYPES = (torch.uint8, torch.int8, torch.int32, torch.float16, torch.float32)


def outcome(call: Call, dtype: torch.dtype, number: Any, device: torch.device) -> str:
    """What a call says: its error's first line, or its result."""
    x = torch.tensor([1, 2, 3]).to(dtype).to(device)
    try:
        return repr(call(x, number).tolist())
    except RuntimeError as error:
        return str(error).partition("\n")[0]


# PyTorch 2.15 drops bounds that no integer of the dtype reaches, and its own kernel is asked to.
DROPPING = {"clamp"} if versions.CLAMP_DROPS_BOUNDS else set()


@pytest.mark.filterwarnings("ignore:aten..clamp runs on the host")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CONVERTING)
def test_a_number_fits_where_pytorch_says_so(name: str, dtype: torch.dtype) -> None:
    call = CONVERTING[name]
    fuse.reset_stats()
    for number in NUMBERS:
        expected = outcome(call, dtype, number, CPU)
        for _ in range(2):
            assert outcome(call, dtype, number, DEVICE) == expected, number
    assert set(fuse.stats()["host_fallbacks"]) <= DROPPING


def test_the_error_names_the_dtype() -> None:
    """What masks half precision in many programs is an error, and nothing is lost by it."""
    scores = torch.ones(2, 2, dtype=torch.float16, device=DEVICE)
    mask = torch.tensor([[True, False], [False, True]]).to(DEVICE)
    with pytest.raises(RuntimeError, match=r"value cannot be converted to type .*Half"):
        scores.masked_fill_(mask, -1e9)
    assert scores.tolist() == [[1, 1], [1, 1]]
    assert scores.masked_fill_(mask, float("-inf")).tolist()[0] == [float("-inf"), 1]


@pytest.mark.parametrize(
    ("dtype", "fitting", "unfit"),
    [
        (torch.uint8, list(range(12)), 256),
        (torch.int16, [-3, 7, 32767, -32768], -32769),
        (torch.int32, [0.5, 1.5, 2.5], 1e12),
        (torch.float16, [0.5, 1.5, float("inf"), 3.5], 1e6),
    ],
    ids=str,
)
def test_a_known_stream_refuses_it_too(dtype: torch.dtype, fitting: list[Any], unfit: Any) -> None:
    """A number that varies is checked on the path without Python, and never compiles again."""

    def step(number: Any, device: torch.device) -> list[Any]:
        x = torch.zeros(3, dtype=dtype).to(device)
        x[1:].fill_(number)
        return (x + 1).tolist()

    for number in fitting[:2]:
        step(number, DEVICE)
    compiled = fuse.stats()["compiles"]
    for number in fitting:
        assert step(number, DEVICE) == step(number, CPU)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="without overflow"):
            step(unfit, DEVICE)
        assert step(fitting[-1], DEVICE) == step(fitting[-1], CPU)
    assert fuse.stats()["compiles"] <= compiled + 1  # the step, of a number that varies


def test_what_is_promoted_first_wraps() -> None:
    x = torch.tensor([1, 2, 255], dtype=torch.uint8)
    assert (x.to(DEVICE) + 300).tolist() == (x + 300).tolist()
    assert x.to(DEVICE).mul_(-300).tolist() == x.mul_(-300).tolist()


def test_alpha_is_no_boolean() -> None:
    x = torch.tensor([1, 2, 3])
    for values in (x, x.to(DEVICE)):
        with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
            torch.add(values, values, alpha=True)


PAST_INT64: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + 2**63,
    "subtract from": lambda x: 2**63 - x,
    "multiply": lambda x: x * (2**63 + 5),
    "add in place": lambda x: x.clone().add_(2**63),
    "compare": lambda x: x > 2**63,
    "equal": lambda x: x == 2**64 - 1,
    "divide": lambda x: x / 2**63,
    "where": lambda x: torch.where(x > 0, x, 2**63),
    "fill": lambda x: x.clone().fill_(2**63),
    "masked_fill": lambda x: x.masked_fill(x > 0, 2**63),
    "clamp": lambda x: x.clamp(max=2**63),
    "add times": lambda x: torch.add(x, x, alpha=2**63),
}


@pytest.mark.filterwarnings("ignore:.*runs on the host")
@pytest.mark.parametrize("backend", ["xla", "numpy"])
@pytest.mark.parametrize("name", PAST_INT64)
def test_numbers_past_int64(name: str, backend: str) -> None:
    """PyTorch takes integers up to 2**64; they wrap around where the result's do."""

    def outcome(x: torch.Tensor) -> str:
        try:
            result = PAST_INT64[name](x)
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        return f"{result.dtype} {result.tolist()}"

    with fuse.FusedEager(backend=backend):
        for dtype in (torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64):
            x = torch.tensor([0, 1, 2], dtype=dtype)
            assert outcome(x.to(DEVICE)) == outcome(x), dtype


def test_numbers_past_int64_are_recorded() -> None:
    fuse.reset_stats()
    assert (torch.tensor([1, 2], device=DEVICE) + 2**63).tolist() == [1 - 2**63, 2 - 2**63]
    assert fuse.stats()["host_fallbacks"] == {}


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_integers_within_vary_without_compiling() -> None:
    x = torch.tensor([1, 2], device=DEVICE)
    for number in range(3):
        assert (x * 2 + number).tolist() == [2 + number, 4 + number]
    compiled = fuse.stats()["compiles"]
    for number in range(3, 9):
        assert (x * 2 + number).tolist() == [2 + number, 4 + number]
    assert fuse.stats()["compiles"] == compiled


@pytest.mark.parametrize("backend", ["xla", "numpy"])
def test_one_hot(backend: str) -> None:
    one_hot = F.one_hot
    with fuse.FusedEager(backend=backend):
        for classes in ([2, 0, 1], [[0, 1], [3, 1]]):
            x = torch.tensor(classes)
            for count in (-1, 4, 7):
                assert one_hot(x.to(DEVICE), count).tolist() == one_hot(x, count).tolist()
        for wrong, count, text in (
            ([-1], -1, "Class values must be non-negative"),
            ([-1, 0], -1, "Class values must be non-negative"),
            ([], -1, "Can not infer total number of classes from empty tensor"),
        ):
            for device in (CPU, DEVICE):
                with pytest.raises(RuntimeError, match=text):
                    one_hot(torch.tensor(wrong, dtype=torch.int64, device=device), count)
        outside = torch.tensor([-1, 5], device=DEVICE)
        with pytest.raises(IndexError, match="index.* out of range"):
            one_hot(outside, 3).tolist()
    with fuse.DebugEager(backend=backend):
        with pytest.raises(RuntimeError, match="Class values must be non-negative"):
            one_hot(outside, 3)
        with pytest.raises(RuntimeError, match="must be smaller than num_classes"):
            one_hot(outside.clamp(min=0), 3)


EIGHTHS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


@pytest.mark.parametrize("backend", ["xla", "numpy"])
@pytest.mark.parametrize("dtype", EIGHTHS, ids=str)
def test_what_is_past_an_8_bit_float(dtype: torch.dtype, backend: str) -> None:
    """The largest number, infinity or NaN: whatever PyTorch's CPU makes of it."""
    numbers = [300, 447, 448, 449, 465, 1e3, 6e4, 7e4, 1e30, float("inf"), float("nan"), 240, 1e-3]
    x = torch.tensor([*numbers, *(-number for number in numbers)])

    def converted(x: torch.Tensor) -> str:
        return repr(x.to(dtype).float().tolist())

    with fuse.FusedEager(backend=backend):
        for source in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            assert converted(x.to(source).to(DEVICE) * 1) == converted(x.to(source)), source
        whole = torch.tensor([3, 500, -70000])
        assert converted(whole.to(DEVICE) + 0) == converted(whole)
