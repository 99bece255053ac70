"""An entry's gradients, checked in one run with its results."""

from __future__ import annotations

from typing import Any

import torch

from tests.coverage.comparing import Mismatch, compare_metadata, compare_values
from tests.coverage.operator_checks import Operator
from tests.coverage.record import Fallbacks, Outcome, brief, outcome_of
from tests.coverage.samples import Call, narrowed, widened
from tests.coverage.transfer import Transfer, tensors_of


def forward_and_gradient(
    operator: Operator, name: str, dtype: torch.dtype
) -> dict[str, Outcome | None]:
    """Both outcomes, from one run of each sample; the first sample also without gradients."""
    gradient = _Both(operator)
    forward = outcome_of(operator.given.plain(dtype, gradient=True), gradient)
    if forward is not None and forward.agrees:
        plain = outcome_of(operator.given.plain(dtype, 1), operator.forward)
        if plain is not None and (not plain.agrees or forward.status == "native"):
            plain.samples += forward.samples
            forward = plain
    if forward is not None:
        forward.fallbacks = tuple(n for n in forward.fallbacks if n not in gradient.only)
        if forward.status == "host" and not forward.fallbacks:
            forward.status = "native"
    return {f"forward {name}": forward, f"gradient {name}": gradient.outcome(forward)}


class _Both:
    """Forward and gradient of a sample in one recorded program."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.samples = 0
        self.fallbacks: set[str] = set()
        self.forward: set[str] = set()
        self.problem = ""

    @property
    def only(self) -> set[str]:
        """Operators that ran on the host in the backward pass alone."""
        return self.fallbacks - self.forward

    def __call__(self, sample: Any) -> None:
        operator = self.operator
        expected, found = operator.call(sample, "cpu"), operator.call(sample, "tpu")
        right = expected(operator.info)
        counted = Fallbacks()
        left = found(operator.info)
        self.forward |= set(counted.names())
        counted = Fallbacks()
        grads: list[Any] = []
        try:
            if not self.problem:
                grads = self.gradients(sample, left, found, right, expected)
        except Exception as error:  # noqa: BLE001  (whatever backward raises is its outcome)
            self.problem = brief(error)
        self.fallbacks |= set(counted.names())
        operator.compare(sample, left, found, right, expected)
        if not self.problem and not operator.is_random(sample):
            self.compare(sample, grads)

    def gradients(
        self, sample: Any, left: Any, found: Call, right: Any, expected: Call
    ) -> list[Any]:
        """Pairs of gradients, the device's first."""
        process = sample.output_process_fn_grad
        heads = [t for t in tensors_of(process(right)) if t.requires_grad]
        mine = [t for t in tensors_of(process(left)) if t.requires_grad]
        if len(heads) != len(mine):
            raise Mismatch(f"{len(mine)} differentiable results instead of {len(heads)}")
        if not heads:
            return []
        seeds = _seeds(heads)
        theirs = torch.autograd.grad(heads, _wanted(expected), seeds, allow_unused=True)
        ours = torch.autograd.grad(
            mine, _wanted(found), [Transfer("tpu")(s) for s in seeds], allow_unused=True
        )
        return list(zip(ours, theirs, strict=True))

    def compare(self, sample: Any, grads: list[Any]) -> None:
        try:
            for index, (one, other) in enumerate(grads):
                where = f"gradient {index}: "
                if (one is None) != (other is None):
                    raise Mismatch(f"{where}{one} instead of {other}")
                if other is not None:
                    compare_metadata(one, other, where, strides=False)
            self.compare_values(sample, grads)
            self.samples += bool(grads)
        except Mismatch as error:
            self.problem = brief(error)

    def compare_values(self, sample: Any, grads: list[Any]) -> None:
        loosen = 4 * self.operator.loosen
        pairs = [(i, one, other) for i, (one, other) in enumerate(grads) if other is not None]
        try:
            for index, one, other in pairs:
                compare_values(one, other, f"gradient {index}: ", loosen)
        except Mismatch:
            wide = widened(sample)
            if wide is None:
                raise
            exact = self.operator.call(wide, "cpu")
            right = exact(self.operator.info)
            heads = [t for t in tensors_of(wide.output_process_fn_grad(right)) if t.requires_grad]
            theirs = torch.autograd.grad(heads, _wanted(exact), _seeds(heads), allow_unused=True)
            for index, one, _ in pairs:
                reference = narrowed(theirs[index], one)
                compare_values(one, reference, f"gradient {index}: ", loosen)

    def outcome(self, forward: Outcome | None) -> Outcome | None:
        """The gradient's outcome; that of the forward pass where this one failed."""
        fallbacks = tuple(sorted(self.fallbacks | self.forward))
        if self.problem:
            return Outcome("failed", self.samples, fallbacks, self.problem)
        if forward is not None and not forward.agrees:
            return Outcome("failed", self.samples, fallbacks, f"forward: {forward.reason}")
        if not self.samples:
            return None
        return Outcome("host" if fallbacks else "native", self.samples, fallbacks)


def _seeds(heads: list[torch.Tensor]) -> list[torch.Tensor]:
    """Cotangents: the same numbers whatever the dtype's width."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(t.shape, dtype=_NARROW.get(t.dtype, t.dtype), generator=generator).to(t.dtype)
        for t in heads
    ]


_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def _wanted(call: Call) -> list[torch.Tensor]:
    return [t for t in tensors_of(call.inputs) if t.requires_grad]
