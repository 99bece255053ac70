"""Calls that PyTorch may refuse, made of the operator database's samples, and what became of each.

A tensor is cast to another dtype, or a number is moved to where it means nothing.

``python -m tests.device.operators.meanings`` counts what is compared, by the settings given:
``FUSE_TIER=compiled`` or ``FUSE_MODE=strict``, for two.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from tests.coverage.operators import ENTRIES
from tests.coverage.samples import Samples
from tests.coverage.transfer import Transfer

DTYPES = (
    torch.float32,
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
)
SAMPLES = 2
INTEGERS = (0, 1, -1, 7, -(2**31))
FLOATS = (0.0, -1.5, 1e300, math.inf, -math.inf, math.nan)
MEMORY = ("allocate", "out of memory", "too large", "overflow")

DATA = "the CPU's kernel looks at each element, which the device does not wait for"
OTHER = "what PyTorch composes it of depends on the device"
COUNTED = "integers are counted, as on PyTorch's accelerators"
COMPOSED = "it is composed of operations that take more dtypes, and refuse in their own words"
DIFFERENT = {
    r"__getitem__: .*": DATA,
    r"(__rmod__|remainder|fmod|floor_divide|div\.(floor|trunc)_rounding): .*": DATA,
    r"_segment_reduce\..*": COMPOSED,
    r"_unsafe_masked_index.*": OTHER,
    r"bernoulli: 1: \[0\] is .*": "of no elements the CPU's kernel looks at no dtype",
    r"gather: .*": DATA,
    r"histc: .*int.*": COUNTED,
    r"histogram(dd)?: .*": COMPOSED,
    r"index_fill: 1: .*uint8": DATA,
    r"(linalg\.)?lu_solve: .*": "its pivots are data, so its kernel is not asked about halves",
    r"multinomial: error .*": DATA,
    r"native_group_norm: .* is -1": "its sizes are arguments, which PyTorch alone gives",
    r"nn\.functional\.linear_cross_entropy.*": OTHER,
    r"nn\.functional\.max_unpool.*": DATA,
    r"nn\.functional\.one_hot: .*": DATA,
    r"nn\.functional\.scaled_dot_product_attention: .*dropout_p.*": OTHER,
    r"nn\.functional\.rrelu: .*upper.* is 1e\+300": "training alone draws from its bounds",
    r"normal\.number_mean: .* is -\d+": "the words of a negative size are those of another factory",
    r"resize_: .* is -\d+": "the CPU's kernel takes a negative size for an overflow",
    r"scatter(_add|_reduce\..*)?: .*": DATA,
    r"uniform: .* is inf": "uncompiled the device's own kernel draws, and checks no bound",
    r"unique(_consecutive)?: .*complex64": COMPOSED,
    r"unravel_index: .*": DATA,
}
"""Calls of which the answer may be another than the CPU's, and why."""

Sample = tuple[Any, tuple[Any, ...], dict[str, Any]]


def calls(name: str, info: Any) -> Iterator[tuple[str, Sample]]:
    """The calls made of one entry, each with its name and what it was made by."""
    yield from ((f"{name}: {made}", sample) for made, sample in _calls(info))


def _calls(info: Any) -> Iterator[tuple[str, Sample]]:
    if info.error_inputs_func is not None:
        for number, error in enumerate(Samples(info).errors()):
            yield f"error input {number}", (error.input, error.args, error.kwargs)
    supported = info.supported_dtypes("cpu")
    dtype = next((dtype for dtype in DTYPES if dtype in supported), None)
    for number, sample in enumerate(Samples(info).plain(dtype, SAMPLES) if dtype else ()):
        nest = (sample.input, sample.args, sample.kwargs)
        yield from ((f"{number}: {made}", call) for made, call in _changed(nest))


def _changed(nest: Sample) -> Iterator[tuple[str, Sample]]:
    leaves, form = tree_flatten(nest)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for at, (path, leaf) in enumerate(tree_flatten_with_path(nest)[0]):
        for other in _others(leaf, max((tensor.dim() for tensor in tensors), default=0)):
            text = str(other.dtype) if isinstance(other, torch.Tensor) else repr(other)
            one = tree_unflatten([*leaves[:at], other, *leaves[at + 1 :]], form)
            yield f"{keystr(path)} is {text}", one
    for dtype in DTYPES if len(tensors) > 1 else ():
        cast = [
            leaf.detach().to(dtype)
            if isinstance(leaf, torch.Tensor) and leaf.dtype == tensors[0].dtype
            else leaf
            for leaf in leaves
        ]
        yield f"all are {dtype}", tree_unflatten(cast, form)


def _others(leaf: Any, rank: int) -> list[Any]:
    """What may stand in the place of an argument: of a dimension's, those around the rank too."""
    if isinstance(leaf, torch.Tensor):
        return [leaf.detach().to(dtype) for dtype in DTYPES if dtype != leaf.dtype]
    if isinstance(leaf, bool):
        return []
    if isinstance(leaf, int):
        return [rank, -rank - 1, *INTEGERS, math.inf]
    return [*INTEGERS[:2], *FLOATS] if isinstance(leaf, float) else []


def answer(function: Any, sample: Sample, device: str) -> list[str]:
    """Dtypes, sizes and strides of the results; or the error, its type and its first line."""
    with warnings.catch_warnings(action="ignore"):
        try:
            value, args, kwargs = Transfer(device)(sample)
            torch.manual_seed(0)
            with torch.no_grad():
                results = tree_flatten(function(value, *args, **kwargs))[0]
        except Exception as error:  # noqa: BLE001  (which one is what is compared)
            return ["error", type(error).__name__, _without_device(str(error).splitlines()[0])]
    return [_form(result) for result in results]


def _without_device(text: str) -> str:
    text = re.sub(r"torch\.(\w+)Tensor|(?:CPU|tpu)(\w+)Type", r"\1\2", text)
    return text.replace("tpu:0", "cpu")


def _form(result: Any) -> str:
    if not isinstance(result, torch.Tensor):
        return type(result).__name__
    strides = result.stride() if result.numel() > 1 else ""  # they say nothing of one element
    return f"{result.dtype} {tuple(result.shape)} {strides}"


def agrees(found: list[str], expected: list[str]) -> bool:
    """Whether the device's answer is the CPU's, or computes halves that it does not."""
    if expected[:1] != ["error"]:
        return found == expected
    if found[:1] != ["error"]:
        halves = "Half" in expected[2] or "BFloat16" in expected[2]
        return halves and expected[1] == "NotImplementedError"
    if any(word in expected[2] for word in MEMORY):
        return any(word in found[2] for word in MEMORY)
    return found == expected


def reason_of(call: str) -> str | None:
    """Why the answer may be another, where it may."""
    found = (why for pattern, why in DIFFERENT.items() if re.fullmatch(pattern, call))
    return next(found, None)


def count() -> int:
    """Compare every call of every entry, and say how many answers differ, and why."""
    compared, reasons = 0, Counter[str]()
    for name in sorted(ENTRIES):
        for call, sample in calls(name, ENTRIES[name]):
            expected = answer(ENTRIES[name].op, sample, "cpu")
            given = answer(ENTRIES[name].op, sample, "tpu")
            compared += 1
            if not agrees(given, expected):
                reasons[
                    reason_of(call) or f"no reason: {call}: {given}, on the CPU {expected}"
                ] += 1
    print(f"{compared} answers compared, {reasons.total()} differ")
    for reason, times in reasons.most_common():
        print(f"{times:6} {reason}")
    return int(any(reason.startswith("no reason") for reason in reasons))


if __name__ == "__main__":
    sys.exit(count())
