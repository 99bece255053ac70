"""What a function returns where sizes are symbols: PyTorch's become JAX's, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import sympy
import torch
from jax import export

from fuse.kernels.function import Function, spec_of
from fuse.trace.spec import TensorSpec

_OPERATORS: Final[dict[str, Any]] = {
    "floordiv": lambda number, by: number // by,
    "mod": lambda number, by: number % by,
    "max": torch.sym_max,
    "min": torch.sym_min,
}
"""What JAX prints of a size beside sums, products and powers."""
Shape = tuple[torch.dtype, tuple[Any, ...]]


def result_shapes(function: Function, arrays: Sequence[torch.Tensor]) -> list[Shape]:
    """Dtype and shape of each result that is returned, symbols kept where the function allows it.

    A function that asks for a symbol's value (a loop over it, a block that must divide it) gets
    the one that it has now, and PyTorch a guard that it stays so.
    """
    if any(isinstance(size, torch.SymInt) for array in arrays for size in array.shape):
        found = _symbolic(function, arrays)
        if found is not None:
            return found
    specs = [
        TensorSpec(spec_of(array).dtype, tuple(int(size) for size in array.shape))
        for array in arrays
    ]
    traced = function.traced(specs)
    returned = traced.results[: len(traced.returned)]
    return [(getattr(torch, spec.dtype), spec.shape) for spec in returned]


def _symbolic(function: Function, arrays: Sequence[torch.Tensor]) -> list[Shape] | None:
    if function.written:
        return None  # which result an argument becomes is decided for sizes that are known
    values: dict[str, torch.SymInt] = {}
    needed: dict[str, Any] = {}
    sizes: list[Any] = [size for array in arrays for size in array.shape]
    for size in sizes:
        if isinstance(size, torch.SymInt):
            expression = size.node.expr
            needed |= {str(symbol): symbol for symbol in expression.free_symbols}
            if expression.is_Symbol:
                values[str(expression)] = size
    names = sorted(needed)
    if set(names) != set(values):
        return None  # a symbol of which there are multiples alone
    dims = export.symbolic_shape(", ".join(names))

    def to_jax(size: Any) -> Any:
        if isinstance(size, int):
            return size
        return sympy.lambdify([needed[name] for name in names], size.node.expr, "math")(*dims)

    def to_torch(size: object) -> Any:
        if isinstance(size, int):
            return size
        # JAX's own evaluation compares sizes with numbers, each of which would be a guard.
        return eval(str(size).replace("^", "**"), {"__builtins__": {}}, {**_OPERATORS, **values})

    try:
        specs = [
            TensorSpec(spec_of(array).dtype, tuple(map(to_jax, array.shape))) for array in arrays
        ]
        with jax.enable_x64(function.wide(specs)):
            made = jax.tree.leaves(jax.eval_shape(function.call, *function.avals(specs)))
        return [(getattr(torch, str(one.dtype)), tuple(map(to_torch, one.shape))) for one in made]
    except Exception:  # noqa: BLE001  (the function needs values: the caller gives them)
        return None
