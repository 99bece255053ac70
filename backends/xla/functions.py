"""JAX functions as programs: traced for given shapes, emitted into chunks, or run on the host."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8 types with NumPy)
import numpy as np
from jax import export
from jax.extend import core
from numpy.typing import ArrayLike

from fuse.backends.functions import Named, Program
from fuse.backends.xla.canonical import canonical

_WIDE: Final = frozenset({"int64", "uint64", "float64", "complex128"})
_PALLAS: Final = frozenset({"pallas_call", "mpmd_map"})
"""What ``pl.pallas_call`` and ``pl.kernel`` are in a jaxpr."""
_CODE_DIGITS: Final = 32  # of SHA-256: no two programs meet by chance
KERNELS: Final = [
    export.DisabledSafetyCheck.custom_call(name)
    for name in ("__gpu$xla.gpu.triton", "triton_kernel_call", "mosaic_gpu_v2", "mosaic_gpu")
]
"""Kernels for GPUs: JAX promises no more than that the same JAX reads them, as it does here."""


def is_wide(dtypes: Sequence[str]) -> bool:
    """Whether a function is traced with JAX's 64-bit types: where it is given one, or always."""
    return bool(jax.config.read("jax_enable_x64")) or not _WIDE.isdisjoint(dtypes)


class JaxProgram(Program):
    """Final. A traced function; its results are those of the jaxpr in the order ``order``."""

    def __init__(
        self,
        closed: core.ClosedJaxpr,
        wide: bool,
        order: Sequence[int],
        numpy: Callable[..., Sequence[np.ndarray]] | None = None,
    ) -> None:
        """``wide``: traced with 64-bit types. ``numpy`` computes the same, for the host."""
        self.closed, self.wide, self.order = closed, wide, tuple(order)
        self._numpy = numpy
        text = f"{canonical(closed)}\n{wide} {self.order}"
        self.code = hashlib.sha256(text.encode()).hexdigest()[:_CODE_DIGITS]
        self.storable = not any("callback" in name for name in _primitives(closed.jaxpr))

    @functools.cached_property
    def _interpreted(self) -> core.ClosedJaxpr:
        closed: core.ClosedJaxpr = self.closed.replace(jaxpr=interpreted(self.closed.jaxpr))
        return closed

    def emit(self, platform: Named, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The results, on tracers. Pallas kernels are interpreted on the CPU."""
        return self.emit_for(platform.name, arrays)

    def emit_for(self, platform: str, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The same for a platform of that name."""
        closed = self._interpreted if platform == "cpu" else self.closed
        # What a number that PyTorch wrapped is here has 64 bits, in JAX's own program it need not.
        given = [
            array if array.dtype == aval.dtype else jax.lax.convert_element_type(array, aval.dtype)
            for array, aval in zip(arrays, closed.in_avals, strict=True)
        ]
        with jax.enable_x64(self.wide):
            found = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *given)
        return [found[at] for at in self.order]

    def shipped(self, platform: str) -> Program:
        """By ``jax.export``, as StableHLO in which Pallas kernels are compiled already."""
        avals = self.closed.in_avals
        with jax.enable_x64(self.wide):
            jitted = jax.jit(lambda *arrays: self.emit_for(platform, arrays))
            exported = export.export(jitted, platforms=[platform], disabled_checks=KERNELS)(*avals)
        return ExportedProgram(self.code, exported)

    def on_host(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results on the host: by the NumPy function that was given, else by XLA's CPU."""
        if self._numpy is not None:
            found: Sequence[ArrayLike] = self._numpy(*arrays)
        else:
            found = self._on_cpu(arrays)
        return [np.asarray(found[at]) for at in self.order]

    def _on_cpu(self, arrays: Sequence[np.ndarray]) -> Sequence[jax.Array]:
        device = jax.local_devices(backend="cpu")[0]
        with jax.enable_x64(self.wide), jax.default_device(device):
            pairs = zip(arrays, self.closed.in_avals, strict=True)
            given = [np.asarray(array, aval.dtype, order="C") for array, aval in pairs]
            results: Sequence[jax.Array] = self._compiled(*given)
            return results

    @functools.cached_property
    def _compiled(self) -> Callable[..., list[jax.Array]]:
        consts = [_on_host(constant) for constant in self.closed.consts]
        jaxpr = self._interpreted.jaxpr
        return jax.jit(lambda *arrays: jax.core.eval_jaxpr(jaxpr, consts, *arrays))


class ExportedProgram(Program):
    """Final. A program from another process, for one platform."""

    storable = True

    def __init__(self, code: str, exported: export.Exported) -> None:
        # Pickled as it is, by the same JAX: its own form of bytes needs another package.
        self.code = code
        self._exported = dataclasses.replace(exported, _get_vjp=None)

    def emit(self, platform: Named, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The results, on tracers."""
        pairs = zip(arrays, self._exported.in_avals, strict=True)
        return list(self._exported.call(*(array.astype(aval.dtype) for array, aval in pairs)))

    def shipped(self, platform: str) -> Program:
        """Itself."""
        return self

    def on_host(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Nothing is run where such programs are."""
        raise NotImplementedError("a program that was made for another machine")


def _on_host(constant: jax.Array) -> jax.Array | np.ndarray:
    extended = jax.dtypes.issubdtype(constant.dtype, jax.dtypes.extended)
    return constant if extended else np.asarray(constant)


def interpreted(jaxpr: core.Jaxpr) -> core.Jaxpr:
    """The jaxpr with its Pallas kernels, inner ones too, run by Pallas's interpreter.

    They have no kernel for the CPU, and raise there without ``interpret=True``.
    """
    equations = []
    for equation in jaxpr.eqns:
        params = {name: _within(value) for name, value in equation.params.items()}
        if equation.primitive.name in _PALLAS and not params["interpret"]:
            params["interpret"] = True
        equations.append(equation.replace(params=params))
    found: core.Jaxpr = jaxpr.replace(eqns=equations)
    return found


def _within(value: Any) -> Any:
    if isinstance(value, core.ClosedJaxpr):
        return value.replace(jaxpr=interpreted(value.jaxpr))
    if isinstance(value, core.Jaxpr):
        return interpreted(value)
    if type(value) in (list, tuple):
        return type(value)(map(_within, value))
    return value


def _primitives(jaxpr: core.Jaxpr) -> Iterator[str]:
    """The names of all primitives of a program, inner ones too."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(item, core.ClosedJaxpr):
                    yield from _primitives(item.jaxpr)
                elif isinstance(item, core.Jaxpr):
                    yield from _primitives(item)
