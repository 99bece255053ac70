"""The numbers that calls of PyTorch's operator database carry, and what becomes of each moved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import (
    SequenceKey,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
)

from tests.coverage.samples import Samples
from tests.coverage.transfer import Transfer
from tests.device.helpers import made

VALUES = 4
"""Values that a number gets: two to become an input of the executable, and two to stay one."""
FLOATS = (0.5, 0.75, 0.3, 0.9, 1.25, 2.5, 0.1)
INTEGERS = (2, 3, 4, 5, -2, 1, -1, 6, 0)
SPECIAL = {int: (0, 1, -1, 2), float: (0.0, 1.0, -0.5, 0.5, 0, 1, 2)}
"""What rules may treat apart, by the type of the number; tried once it varies. A float's place may
be given an integer."""
SAMPLES = 2
DTYPES = (torch.float32, torch.int64)

Sample = tuple[Any, tuple[Any, ...], dict[str, Any]]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Moved:
    """One number among a sample's arguments, and the samples in which it alone is another.

    ``results`` are the CPU's; where they are drawn, only their form is the device's.
    """

    argument: str
    samples: tuple[Sample, ...]
    results: tuple[list[Any], ...]
    drawn: bool
    special: tuple[tuple[Sample, list[Any]], ...] = ()


def call(function: Function, sample: Sample, device: str, seed: int = 0) -> list[Any]:
    """What ``function`` gives for a copy of a sample on ``device``, as tensors on the CPU."""
    value, args, kwargs = Transfer(device)(sample)
    seed_with = torch.manual_seed
    seed_with(seed)
    # Entries that draw seed the generator themselves.
    seeded = mock.patch.object(torch, "manual_seed", lambda own: seed_with(own + seed))
    with seeded, torch.no_grad():
        result = function(value, *args, **kwargs)
    leaves = tree_flatten(result)[0]
    return [leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def functional(info: Any) -> Function:
    """An entry's own call."""
    return info.op  # type: ignore[no-any-return]


def inplace(info: Any) -> Function | None:
    """An entry's in-place call."""
    return info.get_inplace()  # type: ignore[no-any-return]


def into(info: Any) -> Function | None:
    """An entry's call with ``out=``, of the size and dtype of the result."""
    if not info.supports_out:
        return None

    def function(value: Any, *args: Any, **kwargs: Any) -> Any:
        out = tree_map(torch.zeros_like, info.op(value, *args, **kwargs))
        return info.op(value, *args, **kwargs, out=out)

    return function


FORMS = {"function": functional, "in-place": inplace, "out=": into}


def moved_numbers(info: Any, function: Function) -> Iterator[Moved]:
    """Every number of an entry's samples that may be another without changing the results' form."""
    seen: set[str] = set()
    supported = info.supported_dtypes("cpu")
    for dtype in [dtype for dtype in DTYPES if dtype in supported]:
        samples = list(Samples(info).plain(dtype, SAMPLES))
        nests = [(sample.input, sample.args, sample.kwargs) for sample in samples]
        for nest in (*nests, *_with_numbers(info, nests)):
            for argument, at in _numbers(nest):
                moved = None if argument in seen else _moved(function, nest, argument, at)
                if moved is not None:
                    seen.add(argument)
                    yield moved


def _with_numbers(info: Any, samples: list[Sample]) -> Iterator[Sample]:
    """Samples of an operator of two tensors, the second one a Python number, which none of its own
    samples has."""
    if getattr(info, "supports_rhs_python_scalar", False):
        for value, _, _ in samples:
            yield value, (2.5 if value.is_floating_point() else 3,), {}
            yield value, (3,), {}


def _numbers(sample: Sample) -> Iterator[tuple[str, int]]:
    """Names and places of a sample's numbers, of a list's the first one's."""
    for at, (path, leaf) in enumerate(tree_flatten_with_path(sample)[0]):
        later = len(path) > 2 and isinstance(path[-1], SequenceKey) and path[-1].idx > 0
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool) and not later:
            yield keystr(path[1:]) or "input", at


def _moved(function: Function, sample: Sample, argument: str, at: int) -> Moved | None:
    leaves, form = tree_flatten(sample)
    samples: list[Sample] = []
    results: list[list[Any]] = []
    for number in _candidates(leaves[at]):
        changed = tree_unflatten([*leaves[:at], number, *leaves[at + 1 :]], form)
        try:
            found = _on_cpu(function, changed)
        except Exception:  # noqa: BLE001  (an error of any kind: no value of the argument)
            continue
        if results and _form(found) != _form(results[0]):
            continue
        samples.append(changed)
        results.append(found)
        if len(samples) == VALUES:
            drawn = different(_on_cpu(function, changed, 1), found) is not None
            special = () if drawn else tuple(_specials(function, leaves, form, at, _form(found)))
            return Moved(argument, tuple(samples), tuple(results), drawn, special)
    return None


def _specials(
    function: Function, leaves: list[Any], form: Any, at: int, result_form: list[Any]
) -> Iterator[tuple[Sample, list[Any]]]:
    """The special values that the CPU takes and whose results have that form, with these."""
    for number in SPECIAL[float if isinstance(leaves[at], float) else int]:
        changed = tree_unflatten([*leaves[:at], number, *leaves[at + 1 :]], form)
        try:
            found = _on_cpu(function, changed)
        except Exception:  # noqa: BLE001  (an error of any kind: no value of the argument)
            continue
        if _form(found) == result_form:
            yield changed, found


def _on_cpu(function: Function, sample: Sample, seed: int = 0) -> list[Any]:
    with warnings.catch_warnings(action="ignore"):
        return call(function, sample, "cpu", seed)


def _candidates(own: float | int) -> list[float | int]:
    """Values to try. 0, 1 and floats without a fraction are special (no dropout, a whole power)."""
    others = FLOATS if isinstance(own, float) else INTEGERS
    special = own in (0, 1) or (isinstance(own, float) and (not isfinite(own) or own.is_integer()))
    first = [] if special else [own]
    return [*first, *(value for value in others if value not in first)]


def _form(result: list[Any]) -> list[Any]:
    """All of a result but its values."""
    return [
        (leaf.shape, leaf.dtype, leaf.stride()) if isinstance(leaf, torch.Tensor) else type(leaf)
        for leaf in result
    ]


def different(found: list[Any], expected: list[Any]) -> str | None:
    """How results differ, or ``None``."""
    try:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return None


def compiled_late(function: Function, moved: Moved) -> tuple[int, list[list[Any]]]:
    """Executables made for the third value and those after it, and the results of all."""
    found = [call(function, sample, "tpu") for sample in moved.samples[:2]]
    before = made()
    found += [call(function, sample, "tpu") for sample in moved.samples[2:]]
    return made() - before, found
