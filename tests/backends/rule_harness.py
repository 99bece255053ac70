"""Runs one XLA rule, without the device, and compares it with PyTorch's CPU kernel.

``check("add.Tensor", x, y, alpha=2)`` for one call; ``python -m tests.backends.rule_harness NAME``
collects every ATen call that PyTorch's operator database makes for entry NAME on CPU
(forward and backward) and checks the rule of each.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes  # noqa: F401  (registers bfloat16 and 8-bit floats with NumPy)
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fuse.backends.xla.rules
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules import registry
from fuse.backends.xla.rules.registry import STATIC_SCALARS, RuleContext, Unsupported
from fuse.trace.evaluate import flatten
from fuse.trace.spec import TensorSpec

DROPPED = {"layout", "device", "pin_memory", "memory_format", "generator", "out", "non_blocking"}
UNKNOWN_TO_NUMPY = {torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
INTEGER = {1: torch.int8, 2: torch.int16}
TOLERANCE = {
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
}

# Not in every PyTorch that is supported: gone from 2.15 on; new after 2.11.
LANCZOS = {f"_upsample_lanczos2d_aa{form}" for form in ("", ".vec", "_backward")}
GONE = {n for n in {"cholesky", *LANCZOS} if not hasattr(torch.ops.aten, n.split(".")[0])}


def on_platform(
    name: str, monkeypatch: pytest.MonkeyPatch, context: Callable[..., RuleContext]
) -> None:
    """Let what follows run rules in contexts of another platform, "gpu" or "tpu", on this one."""
    there = functools.partial(context, platform=Platform(name))
    monkeypatch.setattr(sys.modules[__name__], "RuleContext", there)


class Recording(dict[str, Callable[..., Any]]):
    """A table of rules that remembers which were asked for."""

    def __init__(self, table: dict[str, Callable[..., Any]]) -> None:
        super().__init__(table)
        self.reached: set[str] = set()

    def __getitem__(self, name: str) -> Callable[..., Any]:
        self.reached.add(name)
        return super().__getitem__(name)

    def unreached(self, package: str, families: tuple[str, ...]) -> set[str]:
        """Rules of the files ``families`` that no test of this process has called so far."""
        found = set()
        for family in families:
            mine = {n for n, rule in self.items() if module_of(rule) == f"{package}.{family}"}
            assert mine, f"no rules in {package}.{family}"
            found |= mine - self.reached
        return found - GONE


def module_of(function: Callable[..., Any]) -> str:
    """Where a rule was written; ``functools.partial`` objects are looked through."""
    return str(getattr(function, "func", function).__module__)


RULES = Recording(registry.RULES)


def unreached(*families: str) -> set[str]:
    """Rules of these files (``"shape"``) that no test of this process has called so far."""
    return RULES.unreached("fuse.backends.xla.rules", families)


def overload_name(overload: torch._ops.OpOverload) -> str:
    name = overload._schema.name.removeprefix("aten::")
    return name if overload._overloadname == "default" else f"{name}.{overload._overloadname}"


def find(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def to_array(tensor: torch.Tensor) -> jax.Array:
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return jnp.asarray(to_numpy(tensor))


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor, in NumPy's dtype of that name."""
    if tensor.dtype in UNKNOWN_TO_NUMPY:
        name = str(tensor.dtype).removeprefix("torch.")
        return tensor.view(INTEGER[tensor.itemsize]).numpy().view(name)
    return tensor.numpy()


def to_tensor(array: Any) -> torch.Tensor:
    array = np.array(array)
    dtype = getattr(torch, array.dtype.name)
    if dtype in UNKNOWN_TO_NUMPY:
        return torch.from_numpy(array.view(f"int{8 * array.itemsize}")).view(dtype)
    return torch.from_numpy(array)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return to_array(value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        has_tensor = any(isinstance(item, torch.Tensor) for item in value)
        return items if has_tensor else tuple(items)
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def bind(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict]:
    """Arguments as a rule receives them: defaults filled, dropped ones removed."""
    positional, keyword = [], {}
    for index, argument in enumerate(overload._schema.arguments):
        if index < len(args):
            value = args[index]
        else:
            value = kwargs.get(argument.name, argument.default_value)
        if argument.name in DROPPED and argument.name != "device":
            continue
        if argument.name == "device":
            continue
        if "ScalarType" in str(argument.type) and isinstance(value, int):
            value = None
        if argument.kwarg_only:
            keyword[argument.name] = value
        else:
            positional.append(value)
    return positional, keyword


def promote(positional: list[Any], keyword: dict[str, Any], out: list[torch.Tensor]) -> str:
    operands: list[Any] = []
    for value in [*positional, *keyword.values()]:
        operands += _tensors(value)
        if isinstance(value, (bool, int, float, complex)):
            operands.append(value)
    tensors = [value for value in operands if isinstance(value, torch.Tensor)]
    if not tensors:
        return str(out[0].dtype).removeprefix("torch.") if out else "float32"
    if any(value.dtype.is_floating_point and value.itemsize == 1 for value in tensors):
        return "float32"  # PyTorch promotes no 8-bit floats
    result: Any = tensors[0]
    for other in operands:
        if other is not tensors[0]:
            dtype = torch.result_type(result, other)
            rank = max(result.dim(), getattr(other, "ndim", 0))
            result = torch.empty((1,) * rank, dtype=dtype)
    return str(result.dtype).removeprefix("torch.")


def run(name: str, *args: Any, **kwargs: Any) -> tuple[list[Any], list[torch.Tensor]]:
    """Return the rule's results and PyTorch's, flattened, as CPU tensors."""
    overload = find(name)
    expected = overload(*args, **kwargs)
    flat = list(_tensors(expected if isinstance(expected, (list, tuple)) else [expected]))
    positional, keyword = bind(overload, args, kwargs)
    spec = tuple(TensorSpec(str(t.dtype).removeprefix("torch."), tuple(t.shape)) for t in flat)
    with jax.enable_x64(True):
        context = RuleContext(out=spec, result_type=promote(positional, keyword, flat))
        values = {
            "p": [_plain(v) for v in positional],
            "k": {k: _plain(v) for k, v in keyword.items()},
        }
        leaves, tree = jax.tree.flatten(values, is_leaf=lambda x: x is None)
        dynamic = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]

        def call(arrays: list[jax.Array]) -> Any:
            left = iter(arrays)
            full = [next(left) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
            bound = jax.tree.unflatten(tree, full)
            return RULES[name](context, *bound["p"], **bound["k"])

        result = jax.jit(call)(dynamic)
    results = [one for one in flatten(result) if one is not None]
    assert len(results) == len(flat), f"{name}: {len(results)} results, expected {len(flat)}"
    for array, want in zip(results, spec, strict=True):
        assert array.shape == want.shape, f"{name}: shape {array.shape}, expected {want}"
    with jax.enable_x64(True):
        return [to_tensor(r.astype(s.dtype)) for r, s in zip(results, spec, strict=True)], flat


def widely(name: str, flat: list[torch.Tensor], *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """What PyTorch's kernel for float32 makes of operands of half precision, rounded as ``flat``.

    Its kernels for half precision round sums on the way on CPUs without such instructions.
    """
    halves = (torch.float16, torch.bfloat16)
    operands = [
        value.float() if isinstance(value, torch.Tensor) and value.dtype in halves else value
        for value in args
    ]
    expected = find(name)(*operands, **kwargs)
    made = _tensors(expected if isinstance(expected, (list, tuple)) else [expected])
    return [value.to(known.dtype) for value, known in zip(made, flat, strict=True)]


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
        flat = widely(name, flat, *args, **kwargs)
    for result, want in zip(results, flat, strict=True):
        rtol, atol = tolerance or TOLERANCE.get(want.dtype, (1e-7, 1e-7))
        torch.testing.assert_close(
            result, want.detach().resolve_conj().resolve_neg(), rtol=rtol, atol=atol,
            equal_nan=True, check_stride=False,
        )  # fmt: skip


class Collector(TorchDispatchMode):
    """Collects the ATen calls that reach a device below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        schema = func._schema
        if not schema.is_mutable and func.namespace == "aten":
            copy = torch.utils._pytree.tree_map_only(
                torch.Tensor, lambda t: t.detach().clone(), (args, kwargs)
            )
            self.calls.append((func, *copy))
        return func(*args, **kwargs)


def sweep(
    entry: str, dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.int64)
) -> dict[str, str]:
    """Check the rules behind one entry of the operator database; overload -> first failure."""
    from torch.testing._internal.common_methods_invocations import op_db  # slow import  # noqa: PLC0415

    outcome: dict[str, str] = {}
    for op in (op for op in op_db if op.name == entry):
        for dtype in dtypes:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            grad = op.supports_autograd and dtype.is_floating_point
            for sample in list(op.sample_inputs("cpu", dtype, requires_grad=grad))[:12]:
                with Collector() as collector:
                    out = op(sample.input, *sample.args, **sample.kwargs)
                    heads = [t for t in _tensors(out) if t.requires_grad]
                    if heads:
                        inputs = _tensors([sample.input, *sample.args])
                        torch.autograd.grad(
                            heads,
                            [t for t in inputs if t.requires_grad],
                            [torch.randn_like(t) for t in heads],
                            allow_unused=True,
                        )
                for func, args, kwargs in collector.calls:
                    name = overload_name(func)
                    if name not in RULES:
                        outcome.setdefault(name, "no rule")
                        continue
                    try:
                        check(name, *args, **kwargs)
                        outcome.setdefault(name, "ok")
                    except Unsupported as error:
                        outcome.setdefault(name, f"unsupported: {error}")
                    except Exception as error:  # noqa: BLE001  (a sweep reports every failure)
                        outcome[name] = f"{type(error).__name__}: {str(error)[:300]}"
    return outcome


if __name__ == "__main__":
    assert fuse.backends.xla.rules and STATIC_SCALARS is not None
    for entry in sys.argv[1:]:
        for name, text in sorted(sweep(entry).items()):
            print(f"{entry:30s} {name:40s} {text}")
