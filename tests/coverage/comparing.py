"""What it means that a result of the device is the CPU's.

Values within the dtype's tolerance, and exactly: the nest, shapes, dtypes, the strides of
dense results and of views, and which result shares whose memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from tests.coverage.transfer import tensors_of

TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-6, 1e-8),
    torch.float32: (2e-4, 2e-5),
    torch.bfloat16: (4e-2, 1e-2),
    torch.float16: (5e-3, 2e-3),
    torch.complex64: (2e-4, 2e-5),
    torch.complex128: (1e-6, 1e-8),
}
"""dtype -> relative and absolute tolerance; the absolute one grows with the largest value."""


class Mismatch(Exception):
    """A result differs from the CPU's; the text says how."""


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements fill one block of memory without overlap, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def compare_nest(found: Any, expected: Any, *, values: bool = True) -> None:
    """Raise ``Mismatch`` unless two nests agree in structure, metadata and values."""
    left, left_shape = tree_flatten(found)
    right, right_shape = tree_flatten(expected)
    if len(left) != len(right) or str(left_shape) != str(right_shape):
        raise Mismatch(f"structure {left_shape} instead of {right_shape}")
    for index, (one, other) in enumerate(zip(left, right, strict=True)):
        where = f"result {index}: " if len(left) > 1 else ""
        if isinstance(other, torch.Tensor):
            if not isinstance(one, torch.Tensor):
                raise Mismatch(f"{where}{type(one).__name__} instead of a tensor")
            compare_metadata(one, other, where)
            if values:
                compare_values(one, other, where)
        elif values and not _same(one, other):
            raise Mismatch(f"{where}{one!r} instead of {other!r}")


def _same(one: Any, other: Any) -> bool:
    if isinstance(other, float) and isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5) or (
            math.isnan(one) and math.isnan(other)
        )
    if isinstance(other, torch.device):
        return True
    return bool(type(one) is type(other) and one == other)


def compare_metadata(
    found: torch.Tensor, expected: torch.Tensor, where: str = "", *, strides: bool = True
) -> None:
    """Shape, dtype, and the strides of a dense result."""
    if found.dtype != expected.dtype:
        raise Mismatch(f"{where}dtype {found.dtype} instead of {expected.dtype}")
    if found.shape != expected.shape:
        raise Mismatch(f"{where}shape {tuple(found.shape)} instead of {tuple(expected.shape)}")
    dense = expected.layout == torch.strided and expected.numel() and is_dense(expected)
    if not strides or not dense:
        return
    pairs = zip(found.stride(), expected.stride(), expected.shape, strict=True)
    if any(one != other for one, other, size in pairs if size > 1):
        raise Mismatch(f"{where}strides {found.stride()} instead of {expected.stride()}")


def compare_values(
    found: torch.Tensor, expected: torch.Tensor, where: str = "", loosen: float = 1.0
) -> None:
    """Raise ``Mismatch`` unless the values agree within the dtype's tolerance."""
    left, right = found.detach().cpu(), expected.detach()
    if right.layout != torch.strided:
        if left.layout != right.layout:
            raise Mismatch(f"{where}layout {left.layout} instead of {right.layout}")
        left, right = left.to_dense(), right.to_dense()
    left, right = left.resolve_conj().resolve_neg(), right.resolve_conj().resolve_neg()
    if right.dtype.itemsize == 1 and right.dtype.is_floating_point:
        left, right = left.float(), right.float()
    relative, absolute = TOLERANCE.get(right.dtype, (0.0, 0.0))
    if absolute and right.numel():
        finite = right.abs()[right.isfinite()]
        absolute *= max(1.0, float(finite.max())) if finite.numel() else 1.0
    try:
        torch.testing.assert_close(
            left,
            right,
            rtol=relative * loosen,
            atol=absolute * loosen,
            equal_nan=True,
            check_stride=False,
        )
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line]
        raise Mismatch(where + " ".join(lines[1:4] or lines)) from None


def aliases(results: Any, inputs: Any) -> list[str]:
    """For each result, the first input or earlier result whose memory it shares."""
    known: dict[int, str] = {}
    for index, tensor in enumerate(tensors_of(inputs)):
        if tensor.layout == torch.strided:
            known.setdefault(tensor.untyped_storage()._cdata, f"input {index}")
    found = []
    for index, tensor in enumerate(tensors_of(results)):
        if tensor.layout != torch.strided:
            found.append("no memory of its own")
            continue
        storage = tensor.untyped_storage()._cdata
        found.append(known.get(storage, "nothing"))
        known.setdefault(storage, f"result {index}")
    return found


def compare_aliases(found: Any, found_inputs: Any, expected: Any, expected_inputs: Any) -> None:
    """Raise ``Mismatch`` unless results share memory as the CPU's do, at the same places."""
    one, other = aliases(found, found_inputs), aliases(expected, expected_inputs)
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]] = list(
        zip(tensors_of(found), tensors_of(expected), strict=True)
    )
    for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
        if mine != theirs:
            raise Mismatch(f"result {index} shares memory with {mine} instead of {theirs}")
        left, right = pairs[index]
        if not theirs.startswith("input") or not right.numel():
            continue
        if left.storage_offset() != right.storage_offset():
            raise Mismatch(
                f"result {index} is a view at {left.storage_offset()} "
                f"instead of {right.storage_offset()}"
            )


def same_distribution(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """Two-sample Kolmogorov-Smirnov test of pooled draws; raises ``Mismatch``.

    The limit is that of the asymptotic distribution at a significance of 1e-6, doubled because
    draws of one tensor may depend on each other (dropout of whole channels).
    """
    one = torch.cat([t.detach().cpu().double().reshape(-1) for t in found]).sort().values
    other = torch.cat([t.detach().double().reshape(-1) for t in expected]).sort().values
    if not one.numel() or not other.numel():
        return
    places = torch.cat([one, other])
    first = torch.searchsorted(one, places, right=True) / one.numel()
    second = torch.searchsorted(other, places, right=True) / other.numel()
    distance = float((first - second).abs().max())
    size = one.numel() * other.numel() / (one.numel() + other.numel())
    limit = 2 * math.sqrt(-math.log(1e-6 / 2) / 2 / size)
    if distance > limit:
        raise Mismatch(f"draws of another distribution: KS distance {distance:.3f} > {limit:.3f}")
