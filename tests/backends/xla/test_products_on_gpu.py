"""Products of half precision as a GPU's programs have them: rounded where they are made."""

from __future__ import annotations

import jax
import pytest
import torch

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends import rule_harness
from tests.backends.rule_harness import RULES, check, on_platform

SHAPES = {
    "mm": ((5, 7), (7, 4)),
    "bmm": ((3, 5, 7), (3, 7, 4)),
    "addmm": ((4,), (5, 7), (7, 4)),
    "baddbmm": ((3, 5, 4), (3, 5, 7), (3, 7, 4)),
}


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_platform("gpu", monkeypatch, rule_harness.RuleContext)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16, torch.float32), ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_they_are_those_of_the_cpu(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES[name]]
    near = {"tolerance": (3e-2, 3e-2)} if dtype == torch.bfloat16 else {}
    check(name, *given, **near)
    if name.startswith(("add", "badd")):
        check(name, *given, beta=0.5, alpha=2, **near)
        check(name, *given, beta=0, **near)


def lowered(name: str, platform: str, dtype: str, out: str) -> str:
    """The program of a rule, and not what it computes."""
    context = RuleContext((TensorSpec(out, (5, 4)),), out, platform=Platform(platform))
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape in SHAPES[name]]
    return str(jax.make_jaxpr(lambda *given: RULES[name](context, *given))(*specs))


@pytest.mark.parametrize("name", ("mm", "addmm"))
def test_no_float32_is_written_for_another_kernel_to_round(name: str) -> None:
    assert "f32" not in lowered(name, "gpu", "bfloat16", "bfloat16")
    assert "preferred_element_type=float32" in lowered(name, "tpu", "bfloat16", "bfloat16")
    assert "preferred_element_type=float32" in lowered(name, "gpu", "bfloat16", "float32")
