"""The GPU platform's options, and what is tried where the compiler fails under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import pytest

from fuse.backends.xla.backend import platform_of
from fuse.backends.xla.gpu.platform import FLUSHED, GpuPlatform
from fuse.backends.xla.lowering import compiled
from fuse.backends.xla.platform import Platform


class Lowered:
    """A program that the compiler refuses, with ``words``, under certain options."""

    def __init__(self, words: str, refused: dict[str, Any]) -> None:
        self.words, self.refused, self.asked = words, refused, []  # type: ignore[var-annotated]

    def compile(self, options: dict[str, Any] | None) -> str:
        self.asked.append(options)
        if any((options or {}).get(name) == value for name, value in self.refused.items()):
            raise jax.errors.JaxRuntimeError(self.words)
        return "an executable"


@dataclass
class Device:
    """As much of JAX's as its platform depends on."""

    platform: str
    compute_capability: str | None


@pytest.mark.parametrize(
    ("name", "capability", "known"),
    [
        ("gpu", "9.0", (9, 0)),
        ("cuda", "12.1", (12, 1)),
        ("rocm", "gfx90a", (0, 0)),
        ("gpu", None, (0, 0)),
    ],
)
def test_every_name_of_jaxs_for_a_gpu_is_its_platform(
    name: str, capability: str | None, known: tuple[int, int]
) -> None:
    device: Any = Device(name, capability)
    found = platform_of(device)
    assert isinstance(found, GpuPlatform)
    assert (found.name, found.capability) == ("gpu", known)


def test_subnormal_numbers_are_flushed_where_the_compiler_can() -> None:
    program: Any = Lowered("never", {})
    assert compiled(program, GpuPlatform(), {"xla_gpu_x": 1}) == "an executable"
    assert program.asked == [{"xla_gpu_ftz": True, "xla_gpu_x": 1}]


def test_they_are_kept_where_it_cannot() -> None:
    words = f"INTERNAL: ptxas exited: line 37; error : {FLUSHED} for instruction 'setp'"
    program: Any = Lowered(words, {"xla_gpu_ftz": True})
    assert compiled(program, GpuPlatform(), {"xla_gpu_x": 1}) == "an executable"
    assert program.asked[1] == {"xla_gpu_ftz": False, "xla_gpu_x": 1}


def test_what_is_refused_otherwise_is_refused() -> None:
    for platform in (GpuPlatform(), Platform("tpu")):
        program: Any = Lowered("INTERNAL: no such thing", {"xla_gpu_x": 1})
        with pytest.raises(jax.errors.JaxRuntimeError, match="no such thing"):
            compiled(program, platform, {"xla_gpu_x": 1})
        assert len(program.asked) == 1


def test_a_platform_without_options_asks_for_none() -> None:
    program: Any = Lowered("never", {})
    compiled(program, Platform("tpu"))
    assert program.asked == [None]
