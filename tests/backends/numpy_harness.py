"""Runs one NumPy rule, without the device, and compares it with PyTorch's CPU kernel.

``check`` and ``run`` are those of ``rule_harness`` for the other backend. ``adopt`` runs the
tests of an XLA rule file on NumPy: the same cases are the best statement that both agree.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fuse.backends.numpy.rules  # noqa: F401  (fills the table of rules)
from fuse.backends.numpy.rules import registry
from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.backends.numpy.rules.registry import REFUSALS, Unsupported
from fuse.trace.evaluate import flatten
from fuse.trace.spec import TensorSpec
from tests.backends import rule_harness
from tests.backends.rule_harness import Recording, bind, find, promote, to_numpy

RULES = Recording(registry.RULES)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """A read-only copy."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous().clone()
    array = to_numpy(tensor)
    array.flags.writeable = False
    return array


def to_tensor(array: Any) -> torch.Tensor:
    return rule_harness.to_tensor(array)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return to_array(value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return items if any(isinstance(item, torch.Tensor) for item in value) else tuple(items)
    return value


def specs_of(tensors: list[torch.Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(str(t.dtype).removeprefix("torch."), tuple(t.shape)) for t in tensors)


def run(name: str, *args: Any, **kwargs: Any) -> tuple[list[Any], list[torch.Tensor]]:
    """Return the rule's results and PyTorch's, flattened, as CPU tensors."""
    overload = find(name)
    expected = overload(*args, **kwargs)
    flat = rule_harness._tensors(expected if isinstance(expected, (list, tuple)) else [expected])
    positional, keyword = bind(overload, args, kwargs)
    specs = specs_of(flat)
    context = RuleContext(out=specs, result_type=promote(positional, keyword, flat))
    arguments = [_plain(value) for value in positional]
    options = {key: _plain(value) for key, value in keyword.items()}
    reason = REFUSALS[name](context, *arguments, **options) if name in REFUSALS else None
    if reason is not None:
        raise Unsupported(reason)
    with np.errstate(all="ignore"):
        results = [r for r in flatten(RULES[name](context, *arguments, **options)) if r is not None]
        assert len(results) == len(flat), f"{name}: {len(results)} results, expected {len(flat)}"
        for array, want in zip(results, specs, strict=True):
            assert array.shape == want.shape, f"{name}: shape {array.shape}, expected {want}"
        arrays = [convert(r, s.dtype) for r, s in zip(results, specs, strict=True)]
    return [to_tensor(array) for array in arrays], flat


def check(
    name: str,
    *args: Any,
    tolerance: tuple[float, float] | None = None,
    wide: bool = False,
    **kwargs: Any,
) -> None:
    """Assert that the rule agrees with PyTorch's CPU kernel, NaN equal to NaN.

    ``tolerance``, relative and absolute, is that of the dtype unless given. ``wide`` compares half
    precision with the kernel for float32, rounded once.
    """
    results, flat = run(name, *args, **kwargs)
    if wide:
        flat = rule_harness.widely(name, flat, *args, **kwargs)
    for result, want in zip(results, flat, strict=True):
        rtol, atol = tolerance or rule_harness.TOLERANCE.get(want.dtype, (1e-7, 1e-7))
        torch.testing.assert_close(
            result, want.detach().resolve_conj().resolve_neg(), rtol=rtol, atol=atol,
            equal_nan=True, check_stride=False,
        )  # fmt: skip


# What a test that calls a rule itself uses of JAX: nothing is compiled here.
_NOT_JAX = SimpleNamespace(jit=lambda function: function, enable_x64=lambda _: nullcontext())

_SWAPPED: dict[str, Any] = {
    "jax": _NOT_JAX,
    "run": run,
    "check": check,
    "RULES": RULES,
    "RuleContext": RuleContext,
    "Unsupported": Unsupported,
    "to_array": to_array,
    "to_tensor": to_tensor,
}


def adopt(
    cases: ModuleType,
    namespace: dict[str, Any],
    leave_out: Collection[str] = (),
    **swapped: Any,
) -> None:
    """Put the tests of ``cases`` into a test file's ``globals()``, to run on the NumPy rules.

    ``cases`` is a file of XLA rule tests; whatever it imported from ``rule_harness`` and
    from XLA's registry is replaced by its counterpart while a test of ``namespace`` runs.
    ``swapped`` adds names of ``cases`` to these. ``leave_out`` names the tests that speak of
    XLA alone; each must exist. That every rule is reached has to be asked in the end, by a test
    of the adopting file.
    """
    found = {name for name in vars(cases) if name.startswith("test_")}
    assert found >= set(leave_out), f"no such tests: {set(leave_out) - found}"
    for name in sorted(found - set(leave_out) - {"test_every_rule_is_reached"}):
        free = name if name not in namespace else f"{name}_{cases.__name__.rpartition('_')[2]}"
        assert free not in namespace, f"{free} is there already"
        namespace[free] = getattr(cases, name)

    @pytest.fixture(autouse=True)
    def on_numpy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        for name, value in _SWAPPED.items():
            if hasattr(cases, name):
                monkeypatch.setattr(cases, name, value)
        for name, value in swapped.items():
            monkeypatch.setattr(cases, name, value)
        with np.errstate(all="ignore"):
            yield

    namespace[f"on_numpy_{cases.__name__.rpartition('.')[2]}"] = on_numpy


def unreached(*families: str) -> set[str]:
    """Rules of these files (``"shape"``) that no test of this process has called so far."""
    return RULES.unreached("fuse.backends.numpy.rules", families)


def sweep(entry: str) -> dict[str, str]:
    """``rule_harness.sweep`` on the NumPy rules: overload -> ok, or its first failure."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("check", "RULES", "Unsupported"):
            patch.setattr(rule_harness, name, _SWAPPED[name])
        return rule_harness.sweep(entry)


if __name__ == "__main__":
    for entry in sys.argv[1:]:
        for name, text in sorted(sweep(entry).items()):
            print(f"{entry:30s} {name:40s} {text}")
