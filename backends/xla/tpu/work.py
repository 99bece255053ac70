"""The work of a kernel, which a TPU's compiler gives no cycles: stated by who calls it.

Where a call of Pallas has a ``cost_estimate``, it is in the text of the optimised program. JAX's
attention for TPUs has none, so its work is stated here, in the name of a scope around the call.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import jax

from fuse.backends.estimates import Machine

SHARE: Final = 0.5
"""The share of the matrix units' peak that a kernel is taken to reach. It is assumed: none was
found of such kernels on TPUs; FlashAttention-2 has 0.5 to 0.73 of a GPU's (arXiv 2307.08691)."""

_SCOPE: Final = "stated_work"
_STATED: Final = re.compile(_SCOPE + r"\.(\d+)\.(\d+)\.(\d+)\.(\d+)")
_ESTIMATE: Final = re.compile(r'"cost_estimate":\{([^}]*)\}')
_FIELD: Final = re.compile(r'"(\w+)":"?(\d+)"?')
KERNEL: Final = 'custom_call_target="tpu_custom_call"'
"""What the instruction of a kernel has in its text."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does.

    Attributes:
        flops: operations of its products, a multiplication and an addition counted as two, and
            of float32 as often as products of bfloat16 make one of it.
        nbytes: what it moves between its memory and the device's.
        width: the least dimension of its products, 0 where it is not known: what it misses of the
            width of a matrix unit is idle.
    """

    flops: int
    nbytes: int
    width: int = 0

    def scope(self, kernels: int = 1) -> AbstractContextManager[object]:
        """A scope in which ``kernels`` are called that do this work together."""
        return jax.named_scope(f"{_SCOPE}.{kernels}.{self.flops}.{self.nbytes}.{self.width}")

    def cycles(self, machine: Machine) -> int:
        """The longer of computing at ``SHARE`` of the peak, and moving at the bandwidth."""
        filled = 1.0
        if self.width:
            filled = self.width / (-(-self.width // machine.matrix) * machine.matrix)
        seconds = max(
            self.flops / (machine.flops * SHARE * filled), self.nbytes / machine.bandwidth
        )
        return round(seconds * machine.clock)


def stated(line: str) -> Work | None:
    """The work of the kernel in the text of an instruction; ``None`` where none is stated."""
    if KERNEL not in line:
        return None
    found = _STATED.search(line)
    if found:
        kernels, flops, nbytes, width = map(int, found.groups())
        return Work(flops // kernels, nbytes // kernels, width)
    found = _ESTIMATE.search(line)
    if found is None:
        return None
    fields = {name: int(number) for name, number in _FIELD.findall(found[1])}
    return Work(fields.get("flops", 0), fields.get("bytes_accessed", 0))
