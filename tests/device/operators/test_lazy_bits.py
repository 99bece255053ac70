"""Tensors that are conjugated or negated in name alone, written by every operator that writes.

PyTorch makes them so before a kernel sees them, but for products, triangular solves and what else
BLAS conjugates itself: those write the tensor as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from tests.coverage.samples import Samples
from tests.coverage.transfer import Transfer
from tests.device.helpers import recorder
from tests.marks import slow_but

Way = Callable[[torch.Tensor], torch.Tensor]
LAZY: dict[str, Way] = {"conjugated": torch.Tensor.conj, "negated": torch._neg_view}
DIFFERENT = {
    "geqrf": "Householder vectors are of either sign",
    "linalg.eig": "vectors of any phase",
    "linalg.eigh": "vectors of any phase",
    "linalg.svd": "vectors of any phase",
    "svd": "vectors of any phase",
    "empty_like": "nothing is written",
    "conj_physical": "in place: PyTorch's kernel knows its own devices alone",
    "linalg.solve_triangular": "the CPU's kernel leaves a negation out: below",
    "linalg.householder_product": "made from vectors that differ",
}
"""What does not compare element by element, with the reason."""


RANDOM = ("normal", "uniform", "rand")
"""What draws numbers of the device's own; and jiterator is CUDA's."""
OPERATORS = [
    op
    for op in op_db
    if torch.complex64 in op.supported_dtypes("cpu")
    and op.name not in DIFFERENT
    and not op.name.startswith(("jiterator", *RANDOM))
]
PIECES = 8


def outs(op: Any, sample: Any, way: Way) -> Iterator[tuple[str, Any]]:
    """Names and calls ``on(device) -> tensors`` that write a tensor with a lazy bit."""

    def into_out(device: str) -> Any:
        move = Transfer(device)
        result = tree_map(lambda one: way(move(torch.full_like(one, 3))), known)
        returned = op(move(sample.input), *move(sample.args), out=result, **move(sample.kwargs))
        return returned, result

    def in_place(device: str) -> Any:
        move = Transfer(device)
        written = way(move(sample.input.clone()))
        returned = op.inplace_variant(written, *move(sample.args), **move(sample.kwargs))
        return returned, written

    known = op(sample.input, *sample.args, **sample.kwargs)
    tensors = torch.utils._pytree.tree_leaves(known)
    numbers = all(isinstance(one, torch.Tensor) and one.dtype != torch.bool for one in tensors)
    if op.supports_out and numbers:  # nothing is negated that is true or false
        yield "out=", into_out
    if op.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
        yield "in place", in_place


def answer(call: Callable[[str], Any], device: str) -> Any:
    torch.manual_seed(0)
    try:
        return tree_map(_plain, call(device))
    except (RuntimeError, TypeError, IndexError, NotImplementedError) as error:
        return type(error).__name__


def _plain(value: Any) -> Any:
    return value.cpu().resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value


def differing(way: Way, piece: int) -> dict[str, str]:
    found = {}
    for op in OPERATORS[piece::PIECES]:
        for sample in Samples(op).plain(torch.complex64, count=1):
            for name, call in outs(op, sample, way):
                expected = answer(call, "cpu")
                for tier in ("compiled", None):
                    with recorder(tier=tier):
                        given = answer(call, "tpu")
                    if isinstance(given, str) or isinstance(expected, str):
                        if given != expected:
                            found[f"{op.name} {name} {tier}"] = f"{given}, not {expected}"
                        continue
                    try:
                        torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-4)
                    except AssertionError as error:
                        found[f"{op.name} {name} {tier}"] = str(error).splitlines()[0]
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", LAZY)
@pytest.mark.parametrize("piece", slow_but((0,), range(PIECES)))
def test_what_writes_them(piece: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    assert differing(LAZY[way], piece) == {}


PRODUCTS: dict[str, Callable[[Way, Callable[..., torch.Tensor]], torch.Tensor]] = {
    "mm": lambda way, x: torch.mm(x(3, 3), x(3, 3), out=way(x(3, 3))),
    "bmm": lambda way, x: torch.bmm(x(2, 3, 3), x(2, 3, 3), out=way(x(2, 3, 3))),
    "addmm": lambda way, x: torch.addmm(x(3, 3), x(3, 3), x(3, 3), out=way(x(3, 3))),
    "addmm_": lambda way, x: way(x(3, 3)).addmm_(x(3, 3), x(3, 3)),
    "baddbmm_": lambda way, x: way(x(2, 3, 3)).baddbmm_(x(2, 3, 3), x(2, 3, 3)),
    "dot": lambda way, x: torch.dot(x(3), x(3), out=way(x(1)[0])),
    "solve_triangular": lambda way, x: torch.linalg.solve_triangular(
        x(3, 3), x(3, 3), upper=True, out=way(x(3, 3))
    ),
    "resized": lambda way, x: torch.mm(x(3, 2), x(2, 3), out=way(x(0))),
}


@pytest.mark.parametrize("tier", ["compiled", "uncompiled"])
@pytest.mark.parametrize("way", LAZY)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_write_them(name: str, way: str, tier: str) -> None:
    """At the first call and at the sixth; what is returned is what was given."""

    def made(device: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        result = PRODUCTS[name](
            LAZY[way],
            lambda *size: torch.randn(size, dtype=torch.complex64, generator=generator).to(device),
        )
        assert result.is_conj() == (way == "conjugated") and result.is_neg() == (way == "negated")
        return result.cpu().resolve_conj().resolve_neg()

    expected = made("cpu")
    if (name, way) == ("solve_triangular", "negated"):
        expected = -expected  # the CPU's kernel leaves it out
    with recorder(tier=tier):
        for _ in range(6):
            torch.testing.assert_close(made("tpu"), expected, rtol=1e-4, atol=1e-4)
