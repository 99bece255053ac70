"""Bad input: a clear error at the call, PyTorch's own where PyTorch has one, and nothing lost."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import fuse
from fuse import config
from fuse.engine import debug
from fuse.errors import ConfigError, HostFallbackError, NonFiniteError
from fuse.trace.functional import find_overload
from tests.device.helpers import recorder, run
from tests.lanes import only_in

DEVICE = torch.device("tpu")

Call = Callable[[torch.device], Any]


def ones(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


def doubles(device: torch.device) -> torch.Tensor:
    return ones(2, device=device, dtype=torch.float64)


SAME_ERROR: dict[str, Call] = {
    "add of two shapes": lambda d: ones(2, device=d) + ones(3, device=d),
    "product of two shapes": lambda d: ones(2, 3, device=d) @ ones(2, 3, device=d),
    "product of two dtypes": lambda d: (
        ones(2, 2, device=d) @ ones(2, 2, device=d, dtype=torch.float64)
    ),
    "linear": lambda d: F.linear(ones(2, 3, device=d), ones(4, 5, device=d)),
    "convolution": lambda d: F.conv2d(ones(1, 3, 4, 4, device=d), ones(2, 2, 3, 3, device=d)),
    "cat": lambda d: torch.cat([ones(2, 2, device=d), ones(3, 3, device=d)]),
    "stack": lambda d: torch.stack([ones(2, device=d), ones(3, device=d)]),
    "view": lambda d: ones(2, 3, device=d).view(4),
    "view of a transposed tensor": lambda d: ones(2, 3, device=d).t().view(6),
    "index out of range": lambda d: ones(2, device=d)[5],
    "too many indices": lambda d: ones(2, device=d)[0, 0],
    "mask of another shape": lambda d: ones(3, device=d)[ones(2, device=d, dtype=torch.bool)],
    "dimension out of range": lambda d: ones(2, 2, device=d).sum(4),
    "integer mean": lambda d: ones(2, device=d, dtype=torch.int64).mean(),
    "in place to another shape": lambda d: ones(2, device=d).add_(ones(3, 2, device=d)),
    "in place to an integer": lambda d: ones(2, device=d, dtype=torch.int64).mul_(0.5),
    "in place into an expanded tensor": lambda d: ones(1, device=d).expand(3).add_(1),
    "copy of a row over all": lambda d: overlapping(ones(3, 2, device=d)),
    "leaf in place": lambda d: torch.ones(2, device=d, requires_grad=True).mul_(2),
    "backward of a vector": lambda d: (torch.ones(2, device=d, requires_grad=True) * 2).backward(),
    "backward twice": lambda d: twice(torch.ones(1, device=d, requires_grad=True).exp()),
    "item of two": lambda d: ones(2, device=d).item(),
    "truth of two": lambda d: bool(ones(2, device=d)),
    "gather": lambda d: ones(2, 2, device=d).gather(5, ones(2, 2, device=d, dtype=torch.int64)),
    "gather with a float": lambda d: ones(2, device=d).gather(0, ones(2, device=d)),
    "embedding with floats": lambda d: F.embedding(ones(2, device=d), ones(3, 2, device=d)),
    "cross entropy": lambda d: F.cross_entropy(
        ones(2, 3, device=d), ones(4, device=d, dtype=torch.int64)
    ),
    "batch norm of one value": lambda d: F.batch_norm(
        ones(1, 3, device=d), None, None, None, None, True
    ),
    "difference with booleans": lambda d: ones(2, device=d) - ones(2, device=d, dtype=torch.bool),
    "difference from booleans": lambda d: ones(2, device=d, dtype=torch.bool) - 1,
    "number less booleans": lambda d: 1 - ones(2, device=d, dtype=torch.bool),
    "clamp into another dtype": lambda d: torch.clamp(ones(2, device=d), 0, 1, out=doubles(d)),
    "neg into another dtype": lambda d: torch.neg(ones(2, device=d), out=doubles(d)),
    "round into another dtype": lambda d: torch.round(ones(2, device=d), out=doubles(d)),
    "nan_to_num into another dtype": lambda d: torch.nan_to_num(ones(2, device=d), out=doubles(d)),
    "all into numbers": lambda d: torch.all(ones(2, 2, device=d), 0, out=ones(2, device=d)),
    "bitwise of floats": lambda d: ones(2, device=d) & ones(2, device=d),
    "out= of another dtype": lambda d: torch.add(
        ones(2, device=d), 1.5, out=ones(2, device=d, dtype=torch.int32)
    ),
    "in place to a rank it has not": lambda d: torch.ones((), device=d).addr_(
        ones(2, device=d), ones(3, device=d)
    ),
    "an empty range": lambda d: ones(2, device=d).uniform_(3, -1),
    "multinomial out= of another dtype": lambda d: torch.multinomial(
        ones(2, device=d), 2, out=ones(2, device=d)
    ),
    "multinomial of more than there is": lambda d: torch.multinomial(ones(2, device=d), 3),
    "multinomial of integers": lambda d: torch.multinomial(ones(2, device=d, dtype=torch.int64), 1),
    "bucketize with a matrix": lambda d: torch.bucketize(ones(2, device=d), ones(2, 2, device=d)),
    "convolution with a negative dilation": lambda d: F.conv1d(
        ones(1, 1, 4, device=d), ones(1, 1, 2, device=d), dilation=-1
    ),
    "convolution with a negative padding": lambda d: F.conv3d(
        ones(1, 1, 4, 4, 4, device=d), ones(1, 1, 2, 2, 2, device=d), padding=-1
    ),
    "transposed convolution with too much output padding": lambda d: F.conv_transpose2d(
        ones(1, 1, 4, 4, device=d), ones(1, 1, 2, 2, device=d), output_padding=1
    ),
    "softmax out= of another dtype": lambda d: torch.softmax(
        ones(2, device=d), 0, out=ones(2, device=d, dtype=torch.float64)
    ),
    "kthvalue out= of another dtype": lambda d: torch.kthvalue(
        ones(2, device=d),
        1,
        out=(ones(device=d, dtype=torch.float64), ones(device=d, dtype=torch.int64)),
    ),
    "negative size": lambda d: torch.ones(-1, device=d),
    "as_strided outside": lambda d: ones(2, device=d).as_strided((4,), (2,)),
    "where": lambda d: torch.where(
        ones(3, device=d, dtype=torch.bool), ones(2, device=d), ones(2, device=d)
    ),
}


def twice(loss: torch.Tensor) -> None:
    loss.backward()
    loss.backward()


def overlapping(whole: torch.Tensor) -> torch.Tensor:
    return whole.copy_(whole[0])


def error_of(call: Call, device: torch.device) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011  (which one is what is compared)
        call(device)
    return caught.value


@pytest.mark.parametrize("backend", config.BACKENDS)
@pytest.mark.parametrize("name", SAME_ERROR)
def test_an_error_is_the_cpus_and_comes_at_the_call(name: str, backend: str):
    expected = error_of(SAME_ERROR[name], torch.device("cpu"))
    with fuse.FusedEager(backend=backend):
        found = error_of(SAME_ERROR[name], DEVICE)
    assert type(found) is type(expected)
    assert str(found).splitlines()[0] == str(expected).splitlines()[0]


def test_nothing_recorded_is_lost_by_an_error():
    x = torch.arange(4.0, device=DEVICE)
    y = x * 2
    with pytest.raises(RuntimeError, match="must match the size"):
        y + torch.ones(3, device=DEVICE)
    z = y + 1
    assert z.tolist() == [1, 3, 5, 7] and x.tolist() == [0, 1, 2, 3]


MIXED: dict[str, Callable[[], Any]] = {
    "add": lambda: torch.ones(2, device=DEVICE) + torch.ones(2),
    "matmul": lambda: torch.ones(2, 2) @ torch.ones(2, 2, device=DEVICE),
    "cat": lambda: torch.cat([torch.ones(2, device=DEVICE), torch.ones(2)]),
    "in place": lambda: torch.ones(2, device=DEVICE).add_(torch.ones(2)),
    "linear": lambda: F.linear(torch.ones(2, device=DEVICE), torch.ones(2, 2)),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_on_two_devices_are_refused(name: str):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXED[name]()


def test_numpy_needs_a_copy_to_the_host():
    with pytest.raises(TypeError, match="Use Tensor.cpu"):
        torch.ones(2, device=DEVICE).numpy()


def test_a_device_that_does_not_exist():
    with pytest.raises(RuntimeError, match="99"):
        torch.ones(2, device="tpu:99")


@only_in("compiled", "accelerator", reason="the CPU has kernels of it")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_a_dtype_the_backend_lacks_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    with pytest.raises(HostFallbackError, match="complex32"):
        torch.ones(2, dtype=torch.complex32).to(DEVICE).clone().cpu()
    assert torch.ones(2, device=DEVICE).sum().item() == 2


@pytest.mark.parametrize(
    ("setting", "call", "valid"),
    [
        ("mode", lambda: fuse.set_mode("fast"), ("debug", "strict", "fused")),
        ("backend", lambda: fuse.set_backend("cuda"), ("xla", "numpy")),
        ("backend", lambda: fuse.FusedEager(backend="tensorflow"), ("xla", "numpy")),
        ("check", lambda: fuse.set_mode("debug", check="inf"), ("nan",)),
    ],
)
def test_unknown_names_list_the_valid_ones(setting: str, call: Any, valid: tuple[str, ...]):
    before = fuse.get_mode(), fuse.get_backend()
    with pytest.raises(ConfigError, match=f"unknown {setting}") as caught:
        call()
    assert all(repr(name) in str(caught.value) for name in valid)
    assert isinstance(caught.value, ValueError)
    assert (fuse.get_mode(), fuse.get_backend()) == before


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("FUSE_MODE", "quick", "'debug', 'strict', 'fused'"),
        ("FUSE_BACKEND", "torch", "'xla', 'numpy'"),
        ("FUSE_HOST_FALLBACK", "never", "'warn', 'error', 'silent'"),
        ("FUSE_MAX_OPERATIONS", "-3", "is not a positive whole number"),
    ],
)
def test_an_environment_variable_with_an_unknown_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, text: str
):
    monkeypatch.setenv(variable, value)
    read = {
        "FUSE_MODE": config.mode,
        "FUSE_BACKEND": config.backend,
        "FUSE_HOST_FALLBACK": config.host_fallback,
        "FUSE_MAX_OPERATIONS": config.max_operations,
    }[variable]
    with pytest.raises(ConfigError, match=value) as caught:
        read()
    assert text in str(caught.value)


@pytest.mark.parametrize("value", ["²", "١", "1_0", " 5", "+5", "1" * 5000, str(2**63), "0x10"])
@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("FUSE_MAX_OPERATIONS", config.max_operations),
        ("FUSE_IN_FLIGHT_BYTES", config.in_flight_bytes),
        ("FUSE_CACHE_LEASE_SECONDS", config.lease_seconds),
    ],
)
def test_a_number_that_is_none_or_too_large(
    monkeypatch: pytest.MonkeyPatch, variable: str, read: Callable[[], int], value: str
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable}=.* whole number up to [0-9]+") as caught:
        read()
    assert "the default is" in str(caught.value) and len(str(caught.value)) < 300


def test_the_largest_number_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_MAX_OPERATIONS", f"00{2**63 - 1}")
    assert config.max_operations() == 2**63 - 1
    code = "import torch; print(torch.ones(3, device='tpu').sum().item())"
    assert run(code, FUSE_MAX_OPERATIONS=str(2**63 - 1)) == "3.0\n"


OTHER_LAYOUTS: dict[str, tuple[Callable[[], object], str]] = {
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8).to(DEVICE),
        "call .dequantize() first",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).to(DEVICE),
        "make it with layout=torch.jagged",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.filterwarnings("ignore:.*quantiz")
@pytest.mark.parametrize("name", OTHER_LAYOUTS)
def test_layouts_that_the_device_has_not(name: str):
    make, hint = OTHER_LAYOUTS[name]
    with pytest.raises(NotImplementedError) as caught:
        make()
    # A guard of PyTorch's in a frame of repr() turns torch.func off as long as it lives.
    traceback.clear_frames(caught.tb)
    text = str(caught.value).partition("\nException raised from")[0]
    assert f"the tpu device has no {name} tensors; {hint}" in text
    assert text.startswith("aten::") and text.endswith("or keep the tensor on the CPU")
    assert len(text) < 220


@pytest.mark.filterwarnings("ignore:.*quantiz")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_layouts_made_of_the_device_s_tensors():
    with pytest.raises(NotImplementedError, match="no quantized tensors; call .dequantize"):
        torch.quantize_per_tensor(torch.ones(2, device=DEVICE), 1.0, 0, torch.qint8)
    parts = [torch.ones(2), torch.ones(3)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged).to(DEVICE)
    assert jagged.sum().item() == 5


DATA_ERRORS: dict[str, Call] = {
    "embedding": lambda d: F.embedding(torch.tensor([7]).to(d), ones(3, 2, device=d)),
    "gather": lambda d: ones(2, device=d).gather(0, torch.tensor([2]).to(d)),
    "index_select": lambda d: ones(2, device=d).index_select(0, torch.tensor([-3]).to(d)),
    "advanced indexing": lambda d: ones(2, device=d)[torch.tensor([5]).to(d)],
    "nll loss": lambda d: F.nll_loss(ones(1, 3, device=d), torch.tensor([3]).to(d)),
    "multinomial": lambda d: torch.multinomial(-ones(2, device=d), 1),
    "scatter": lambda d: ones(2, device=d).scatter_(0, torch.tensor([4]).to(d), 1.0),
    "unpooling": lambda d: F.max_unpool2d(
        ones(1, 1, 1, 1, device=d), torch.full((1, 1, 1, 1), 9).to(d), 2
    ),
    "unpooling of volumes": lambda d: F.max_unpool3d(
        ones(1, 1, 1, 1, 1, device=d), torch.full((1, 1, 1, 1, 1), 99).to(d), 2
    ),
    "bernoulli": lambda d: torch.bernoulli(torch.tensor([1.5]).to(d)),
    "bernoulli in place": lambda d: ones(1, device=d).bernoulli_(torch.tensor([1.5]).to(d)),
    "normal": lambda d: torch.normal(0.0, -ones(2, device=d)),
    "normal of two tensors": lambda d: torch.normal(ones(2, device=d), -ones(2, device=d)),
    "searchsorted": lambda d: torch.searchsorted(
        ones(2, device=d), ones(1, device=d), sorter=torch.tensor([0, 7]).to(d)
    ),
    "multilabel margin loss": lambda d: F.multilabel_margin_loss(
        ones(1, 3, device=d), torch.tensor([[7, -1, -1]]).to(d)
    ),
    "masked_scatter": lambda d: ones(3, device=d).masked_scatter(
        ones(3, device=d) > 0, ones(1, device=d)
    ),
    "binary cross entropy": lambda d: F.binary_cross_entropy(
        torch.tensor([1.5]).to(d), ones(1, device=d)
    ),
    "renormalised embedding": lambda d: F.embedding(
        torch.tensor([7]).to(d), ones(3, 2, device=d), max_norm=0.5
    ),
    "singular values of NaN": lambda d: torch.linalg.svd(torch.full((2, 2), torch.nan).to(d)),
    "pivots to solve with": lambda d: torch.linalg.lu_solve(
        torch.eye(2).to(d), torch.tensor([7, 8], dtype=torch.int32).to(d), torch.eye(2).to(d)
    ),
    "pivots to unpack": lambda d: torch.lu_unpack(
        torch.eye(2).to(d), torch.tensor([7, 8], dtype=torch.int32).to(d)
    ),
    "integer division": lambda d: torch.tensor([1, 2]).to(d) // torch.tensor([1, 0]).to(d),
    "integer division that truncates": lambda d: (
        torch.tensor([1, 2]).to(d).div_(torch.tensor([1, 0]).to(d), rounding_mode="trunc")
    ),
    "integer remainder": lambda d: torch.tensor([1, 2]).to(d) % torch.tensor([1, 0]).to(d),
    "integer fmod": lambda d: torch.tensor([1, 2]).to(d).fmod(torch.tensor([1, 0]).to(d)),
}


@pytest.mark.parametrize("backend", config.BACKENDS)
@pytest.mark.parametrize("name", DATA_ERRORS)
def test_debug_raises_the_cpus_error_for_data_it_refuses(name: str, backend: str):
    expected = error_of(DATA_ERRORS[name], torch.device("cpu"))
    with fuse.DebugEager(backend=backend):
        found = error_of(DATA_ERRORS[name], DEVICE)
        assert torch.ones(2, device=DEVICE).sum().item() == 2
    assert type(found) is type(expected)
    assert str(expected).splitlines()[0] in str(found)


def test_what_debug_asks_the_host_about_exists():
    assert [n for n in debug.REFUSING | debug.DIVIDING if find_overload(n) is None] == []


def test_debug_divides_floats_by_zero():
    with fuse.DebugEager():
        one, zero = ones(1, device=DEVICE), torch.zeros(1, device=DEVICE)
        assert torch.div(one, zero, rounding_mode="floor").item() == float("inf")
        assert torch.remainder(one, zero).isnan().item()


def test_debug_stops_at_the_first_non_finite_result():
    with fuse.DebugEager(check="nan"):
        x = torch.tensor([1.0, 0.0]).to(DEVICE)
        with pytest.raises(NonFiniteError, match="non-finite") as caught:
            x.log().exp()
        text = str(caught.value)
        assert "aten::log" in text and "float32[2]" in text and "test_errors.py" in text
        assert x.tolist() == [1, 0]
    with fuse.DebugEager():
        assert x.log().tolist() == [0.0, float("-inf")]


def test_an_interrupt_in_shape_inference_is_the_users():
    def interrupted(x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    library = torch.library.Library("fuse_interrupted", "FRAGMENT")
    library.define("op(Tensor x) -> Tensor")
    library.impl("op", lambda x: x * 1, "CPU")
    library.impl("op", interrupted, "Meta")
    x = torch.ones(2, device=DEVICE)
    with recorder(tier="compiled"), pytest.raises(KeyboardInterrupt):
        torch.ops.fuse_interrupted.op(x)
    assert (x + 1).tolist() == [2, 2]


@pytest.mark.parametrize(
    "write",
    [
        lambda x, number: torch.sum(x, 0, out=number),
        lambda x, number: torch.nonzero(x, out=torch.empty([], dtype=torch.long)),
        lambda x, number: number.add_(x[0]),
        lambda x, number: torch._foreach_mul_([number], [x[0]]),
    ],
)
def test_a_number_on_the_host_is_read_and_never_written(write):
    x, number = torch.ones(3, device=DEVICE), torch.tensor(2.0)
    with pytest.raises(RuntimeError, match="to be on the same device, .*tpu:0 and cpu"):
        write(x, number)
    assert number.item() == 2.0
    assert (x * number).tolist() == [2.0] * 3
