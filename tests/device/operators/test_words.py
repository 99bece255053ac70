"""Types, texts and warnings of PyTorch's CPU, and what deterministic algorithms ask for."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from tests.device.helpers import DEVICE, run
from tests.lanes import only_in


def square(device: Any) -> torch.Tensor:
    return torch.arange(12.0).view(3, 4).to(device)


def at(device: Any, *places: float, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(places, dtype=dtype).to(device)


def ones(device: Any, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype).to(device)


def mask(device: Any, *sizes: int) -> torch.Tensor:
    return (torch.arange(math.prod(sizes)) % 2).to(torch.uint8).view(sizes).to(device)


def put(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    x[index] = value
    return x


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "index_put_, a shape that does not fit": lambda d: square(d).index_put_(
        (at(d, 0, 1),), ones(d, 3)
    ),
    "a mask's place, a shape that does not fit": lambda d: square(d).__setitem__(
        square(d) > 3, ones(d, 3)
    ),
    "indices that do not fit": lambda d: square(d)[at(d, 0, 1), at(d, 0, 1, 2)],
    "a mask that does not fit": lambda d: square(d)[ones(d, 4, dtype=torch.bool)],
    "indices of floats": lambda d: square(d)[ones(d, 3)],
    "an index of what is empty": lambda d: ones(d, 0, 3)[at(d, 0)].cpu(),
    "an index beside what is empty": lambda d: ones(d, 3, 0)[:, at(d, 0)].cpu(),
    "no index of what is empty": lambda d: ones(d, 0, 3)[at(d)],
    "a uint8 mask": lambda d: square(d)[ones(d, 3, dtype=torch.uint8)],
    "a uint8 mask that does not fit": lambda d: square(d)[ones(d, 4, dtype=torch.uint8)],
    "tensor_split, no section": lambda d: square(d).tensor_split(0),
    "tensor_split, places of floats": lambda d: square(d).tensor_split(torch.ones(2)),
    "tensor_split, places of bytes": lambda d: square(d).tensor_split(
        torch.ones(2, dtype=torch.uint8)
    ),
    "tensor_split, places in two dimensions": lambda d: square(d).tensor_split(
        torch.tensor([[1, 2]])
    ),
    "bincount of floats": lambda d: ones(d, 3).bincount(),
    "bincount of floats, empty": lambda d: ones(d, 0).bincount(),
    "bincount of bools": lambda d: ones(d, 3, dtype=torch.bool).bincount(),
    "bincount of complex numbers": lambda d: ones(d, 2, 2, dtype=torch.complex64).bincount(),
    "bincount in two dimensions": lambda d: ones(d, 0, 2, dtype=torch.int64).bincount(),
    "bincount below zero": lambda d: at(d, -1, 2).bincount(),
    "bincount, weights that do not fit": lambda d: at(d, 1, 2).bincount(ones(d, 3)),
    "bincount, weights of nothing": lambda d: at(d).bincount(ones(d, 0, 1), minlength=2),
    "bincount, a negative length": lambda d: at(d, 1).bincount(minlength=-1),
    "a rank past the only element": lambda d: ones(d, 1).kthvalue(5)[0],
    "a window wider than the only element": lambda d: torch.nn.functional.avg_pool1d(
        ones(d, 1, 1), 3
    ),
    "a stretch longer than the only element": lambda d: ones(d, 1).unfold(0, 3, 1),
    "a uint8 mask's place, a number": lambda d: put(square(d), mask(d, 3), 5.0),
    "a uint8 mask's place, a 0-d tensor": lambda d: put(square(d), mask(d, 3), ones(d)),
    "a uint8 mask's place, one element": lambda d: put(square(d), mask(d, 3, 4), ones(d, 1)),
    "a uint8 mask's place, a row": lambda d: put(square(d), mask(d, 3), ones(d, 4)),
    "a uint8 mask's place, elements": lambda d: put(square(d), mask(d, 3, 4), ones(d, 6)),
    "a uint8 mask's place, not in place": lambda d: square(d).index_put((mask(d, 3),), ones(d)),
    "a uint8 mask's place, added to": lambda d: square(d).index_put_(
        (mask(d, 3, 4),), ones(d), accumulate=True
    ),
    "masked_fill by a uint8 mask": lambda d: square(d).masked_fill_(mask(d, 3, 4), 2.0),
    "masked_select by a uint8 mask": lambda d: square(d).masked_select(mask(d, 3, 4)),
    "masked_scatter by a uint8 mask": lambda d: square(d).masked_scatter(
        mask(d, 3, 4), ones(d, 12)
    ),
    "out= of nonzero, resized": lambda d: torch.nonzero(square(d), out=at(d, 1, 2)),
    "out= of nonzero, empty": lambda d: torch.nonzero(square(d), out=at(d)),
    "out= of masked_select, resized": lambda d: torch.masked_select(
        square(d), square(d) > 2, out=ones(d, 2)
    ),
    "is_set_to": lambda d: is_set_to(square(d)),
    "types of storages": lambda d: [
        ones(d, 2, dtype=one).storage().type().replace("torch.tpu.", "torch.")
        for one in (torch.float32, torch.int8, torch.bool, torch.complex64, torch.bfloat16)
    ],
    "asarray": lambda d: torch.asarray(ones(d, 2), requires_grad=True).requires_grad,
}


def is_set_to(x: torch.Tensor) -> list[bool]:
    same = torch.empty(0, device=x.device).set_(x)
    others = (x[1:], x.t(), x.clone(), torch.empty(0, device=x.device))
    return [same.is_set_to(x), x.is_set_to(same), *(x.is_set_to(one) for one in others)]


def said(program: Callable[[Any], Any], device: Any) -> Any:
    """What a program returned, or type and text of its error; and the texts of its warnings."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = program(device)
            found = found.tolist() if isinstance(found, torch.Tensor) else found
        except Exception as error:  # noqa: BLE001  (whichever it is, it is what is compared)
            found = type(error), str(error).splitlines()[0]
    # Up to the place that triggered it, or the shapes, which PyTorch spells otherwise in Python.
    cut = re.compile(r" \(Triggered internally| since it had shape")
    texts = [cut.split(str(one.message))[0] for one in heard if one.category is UserWarning]
    return found, [text for text in texts if "TypedStorage" not in text]  # once a process


@pytest.mark.parametrize("name", PROGRAMS)
def test_words_are_the_cpus(name: str) -> None:
    expected = said(PROGRAMS[name], torch.device("cpu"))
    for _ in range(7):
        assert said(PROGRAMS[name], DEVICE) == expected


RESIZED: dict[str, Callable[[Any], Any]] = {
    "add": lambda d: torch.add(square(d), 1, out=ones(d, 2)),
    "mm": lambda d: torch.mm(square(d), square(d).t(), out=ones(d, 2)),
    "mm, of another size each time": lambda d: [
        torch.mm(square(d), square(d).t(), out=ones(d, size)) for size in (2, 3, 4)
    ][0],
    "cat": lambda d: torch.cat([square(d), square(d)], out=ones(d, 1)),
    "sum": lambda d: torch.sum(square(d), 0, out=ones(d, 2)),
    "two of them": lambda d: torch.max(square(d), 0, out=(ones(d, 2), at(d, 1)))[1],
    "no element": lambda d: torch.add(square(d), 1, out=ones(d, 0)),
    "the right size": lambda d: torch.add(square(d), 1, out=ones(d, 3, 4)),
    "addbmm": lambda d: torch.addbmm(
        ones(d, 2, 2), ones(d, 1, 2, 2), ones(d, 1, 2, 2), out=ones(d, 3)
    ),
    "narrow_copy": lambda d: torch.narrow_copy(square(d), 0, 0, 2, out=ones(d, 2)),
    "arange": lambda d: torch.arange(6, out=at(d, 1, 2)),
    "arange of floats": lambda d: torch.arange(0, 2, 0.5, out=ones(d, 2)),
    "arange, as many elements": lambda d: torch.arange(6, out=at(d, 1, 2, 3, 4, 5, 6).view(2, 3)),
    "linspace": lambda d: torch.linspace(0, 1, 5, out=ones(d, 2)),
    "linspace, as many elements": lambda d: torch.linspace(0, 5, 6, out=ones(d, 2, 3)),
    "linspace, as many elements, transposed": lambda d: torch.linspace(
        0, 5, 6, out=ones(d, 2, 3).t()
    ),
    "logspace": lambda d: torch.logspace(0, 2, 3, out=ones(d, 2)),
    "logspace, as many elements": lambda d: torch.logspace(0, 3, 4, out=ones(d, 2, 2)),
    "eye": lambda d: torch.eye(2, 3, out=ones(d, 2)),
    "full": lambda d: torch.full((2, 2), 3.0, out=ones(d, 2)),
    "randperm": lambda d: torch.randperm(4, out=at(d, 1)).sort()[0],
    "multinomial": lambda d: torch.multinomial(
        torch.tensor([0.0, 1.0]).to(d), 3, replacement=True, out=at(d, 1)
    ),
}
"""With the texts of the CPU's kernels, some of which say nothing."""


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.filterwarnings("ignore:.*runs on the host")
def test_resized_outs_are_warned_of(name: str) -> None:
    expected = said(RESIZED[name], torch.device("cpu"))
    for _ in range(7):
        assert said(RESIZED[name], DEVICE) == expected


@only_in("compiled", "accelerator", reason="what runs on the CPU's kernels says what they say")
@pytest.mark.filterwarnings("ignore")  # of what is deprecated
@pytest.mark.slow
def test_every_operator_warns_of_its_resized_out_as_the_cpu_does() -> None:
    differing, compared = {}, 0
    for op in op_db:
        if op.supports_out and torch.float32 in op.supported_dtypes("cpu"):
            sample = next(iter(op.sample_inputs("cpu", torch.float32)), None)
            if sample is not None and op.name not in NOT_COMPARED:
                try:
                    expected = warned(op, sample, "cpu")
                except (TypeError, RuntimeError):
                    continue  # it takes no out=, or none of another size
                compared += 1
                found = [warned(op, sample, "tpu") for _ in range(2)]
                if found != [expected] * 2:
                    differing[op.name] = expected, found
    assert set(differing) <= set(OTHERWISE) and compared > 200, differing


OTHERWISE = {
    "angle": "the first call's out= is resized twice, by its kernel as well",
    "as_strided_copy": "a copy of the device's own, which resizes in silence",
    "histogram": "composed on the device of what resizes in silence",
    "linalg.solve_triangular": "the first call's out= is resized twice, by its kernel as well",
    "linalg.lstsq": "composed on the device of what resizes in silence",
}
"""Operators that say it otherwise, and why."""
NOT_COMPARED = {"sparse.sampled_addmm": "sparse tensors alone"}


def warned(op: Any, sample: Any, device: str) -> int:
    """How often a call says that ``out=``, which has other sizes than its results, is resized."""

    def longer(one: Any) -> Any:
        return one.new_ones(one.numel() + 2).to(device) if isinstance(one, torch.Tensor) else one

    def moved(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    known = op(sample.input, *sample.args, **sample.kwargs)
    outs = tree_map(longer, known)
    given = tree_map(moved, (sample.input, sample.args, sample.kwargs))
    keyword = {name: device if name == "device" else one for name, one in given[2].items()}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        op(given[0], *given[1], out=outs, **keyword)
        torch.tpu.synchronize()
    return sum("resized" in str(one.message) for one in heard)


def test_what_is_on_another_device_is_refused_as_out() -> None:
    x = square(DEVICE)
    for call in (
        lambda out: torch.nonzero(x, out=out.long()),
        lambda out: torch.masked_select(x, x > 2, out=out),
        lambda out: torch.add(x, 1, out=out),
    ):
        with pytest.raises(RuntimeError, match=r"on the same device, .* tpu:0 and cpu"):
            call(torch.ones(3))


INDEXED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "read": lambda x, index: x[index],
    "read at two places": lambda x, index: x[:, index, None, index],
    "written": lambda x, index: put(x, index, 1.0),
    "put": lambda x, index: x.index_put((index,), torch.tensor(1.0)),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_on_another_device_than_what_they_index(name: str) -> None:
    """PyTorch has no kernel for it on the CPU alone: the words are those of its indexing."""
    with pytest.raises(RuntimeError) as raised:
        INDEXED[name](torch.ones(3, 3, 3, 4), torch.tensor([0, 1], device=DEVICE))
    assert str(raised.value).splitlines()[0] == (
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
    )
    INDEXED[name](torch.ones(3, 3, 3, 4, device=DEVICE), torch.tensor([0, 1]))


def test_complex_numbers_of_halves_are_warned_of() -> None:
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        for device in ("cpu", DEVICE):
            for make in (
                torch.empty,
                lambda *size, **given: torch.empty_strided(size, (1,), **given),
            ):
                with pytest.warns(
                    UserWarning, match="^ComplexHalf support is experimental and many"
                ):
                    make(3, dtype=torch.complex32, device=device)
    finally:
        torch.set_warn_always(before)


def test_a_uint8_condition_is_warned_of_once() -> None:
    """As long as the CPU's kernel has not said it: in a process of its own."""
    program = """
import torch, warnings
x, one = torch.ones(2).to("tpu"), torch.ones(2, dtype=torch.uint8).to("tpu")
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    for _ in range(7):
        assert torch.where(one, x, -x).tolist() == [1, 1]
print(len([h for h in heard if "where received a uint8 condition tensor" in str(h.message)]))
"""
    assert run(program, fresh=True).strip() == "1"


def test_a_typed_storage_is_of_its_class() -> None:
    storage = ones(DEVICE, 2).storage()
    assert isinstance(storage, torch.tpu.FloatStorage)
    assert not isinstance(storage, torch.tpu.IntStorage) and not isinstance(
        storage, torch.FloatStorage
    )
    made = torch.tpu.ShortStorage([1, 2])
    assert made.device.type == "tpu" and made.dtype == torch.int16 and made.tolist() == [1, 2]
    with pytest.raises(AttributeError, match="NoStorage"):
        torch.tpu.NoStorage  # noqa: B018


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


MADE: dict[str, Callable[[Any, torch.dtype], torch.Tensor]] = {
    "empty": lambda d, dtype: torch.empty(2, 3, dtype=dtype, device=d),
    "empty_strided": lambda d, dtype: torch.empty_strided((2, 2), (1, 2), dtype=dtype, device=d),
    "empty_like": lambda d, dtype: torch.empty_like(torch.ones(3, dtype=dtype, device=d)),
    "new_empty": lambda d, dtype: torch.ones(3, device=d).new_empty(2, dtype=dtype),
    "resize_": lambda d, dtype: torch.ones(3, dtype=dtype, device=d).resize_(2, 3),
    "empty, then written": lambda d, dtype: torch.empty(3, dtype=dtype, device=d).fill_(1),
}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool, torch.complex64])
def test_new_memory_is_filled_where_algorithms_are_deterministic(
    name: str, dtype: torch.dtype
) -> None:
    for _ in range(7):
        found, expected = MADE[name](DEVICE, dtype).cpu(), MADE[name]("cpu", dtype)
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.usefixtures("deterministic")
def test_memory_is_left_as_it_is_where_it_need_not_be_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    assert not torch.empty(3, device=DEVICE).isnan().any().item()


DETERMINISTIC: dict[str, Callable[[Any], Any]] = {
    "put_": lambda d: ones(d, 3).put_(at(d, 0), ones(d, 1)),
    "put_, accumulated": lambda d: ones(d, 3).put_(at(d, 0), ones(d, 1), accumulate=True),
    "scatter_add": lambda d: ones(d, 3).scatter_add(0, at(d, 0, 0), ones(d, 2)),
    "index_add": lambda d: ones(d, 3).index_add(0, at(d, 0, 0), ones(d, 2)),
    "scatter_reduce": lambda d: ones(d, 3).scatter_reduce(0, at(d, 0, 0), ones(d, 2), "prod"),
    "kthvalue": lambda d: ones(d, 3).kthvalue(1)[0],
    "histc": lambda d: ones(d, 3).histc(3),
    "cumsum": lambda d: ones(d, 3).cumsum(0),
}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_deterministic_algorithms_raise_where_the_cpus_do(name: str) -> None:
    expected = said(DETERMINISTIC[name], torch.device("cpu"))
    for _ in range(7):
        assert said(DETERMINISTIC[name], DEVICE) == expected
