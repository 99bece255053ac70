"""Arithmetic of 64 bits, which are pairs of 32 on a TPU: exact, or refused by name."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RULES, RuleContext, Unsupported
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import check, on_platform, to_array
from tests.backends.test_rules_matmul import r


def test_the_next_number_of_float64_is_refused_for_a_tpu() -> None:
    x = np.ones(2)
    for dtype, platform in (("float64", "cpu"), ("float32", "tpu")):
        context = RuleContext((TensorSpec(dtype, (2,)),), dtype, platform=Platform(platform))
        RULES["nextafter"](context, x.astype(dtype), x.astype(dtype))
    context = RuleContext((TensorSpec("float64", (2,)),), "float64", platform=Platform("tpu"))
    with pytest.raises(Unsupported, match="a TPU's float64"):
        RULES["nextafter"](context, x, x)


def test_a_tpu_multiplies_three_tensors_of_64_bit_integers_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its compiler refuses a product of them: there are none, and sums wrap as the CPU's do."""
    on_platform("tpu", monkeypatch, RuleContext)
    large = [r(*shape, dtype=torch.int64) << 40 for shape in ((6, 3), (4, 3, 5), (6, 5))]
    expanded = ([1, 3], [0], [1, 2], [2, 3])
    check("_trilinear", *large, *expanded)

    def rule(*operands: jax.Array) -> jax.Array:
        context = RuleContext((TensorSpec("int64", (6, 4)),), "int64", platform=Platform("tpu"))
        result: jax.Array = RULES["_trilinear"](context, *operands, *map(tuple, expanded))
        return result

    with jax.enable_x64(True):
        assert "dot_general" not in str(jax.make_jaxpr(rule)(*map(to_array, large)))


@pytest.mark.parametrize(
    "name, shapes",
    [
        ("mm", ((3, 5), (5, 4))),
        ("bmm", ((2, 3, 5), (2, 5, 4))),
        ("mv", ((3, 5), (5,))),
        ("dot", ((5,), (5,))),
    ],
)
def test_a_tpu_multiplies_64_bit_integers_exactly(
    name: str, shapes: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_platform("tpu", monkeypatch, RuleContext)
    check(name, *(r(*shape, dtype=torch.int64) << 40 for shape in shapes))


@pytest.mark.parametrize("dims", (1, 2))
@pytest.mark.parametrize("transposed", (False, True))
def test_a_tpu_convolves_64_bit_integers_exactly(
    dims: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_platform("tpu", monkeypatch, RuleContext)
    x, weight = (r(*lead, *(size,) * dims, dtype=torch.int64) for lead, size in
                 (((2, 3), 5), ((3, 3), 2)))  # fmt: skip
    each = [[number] * dims for number in (2, 1, 1)]
    check("convolution", x << 40, weight, None, *each, transposed, [0] * dims, 1)
