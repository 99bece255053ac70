"""A JAX function over a flat list of arrays, traced once for each shapes and dtypes."""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import jaxlib
import torch

from fuse.backends.functions import Program
from fuse.backends.xla.functions import JaxProgram, is_wide
from fuse.errors import KernelError, describe
from fuse.trace.source import is_users, user_line
from fuse.trace.spec import ITEMSIZE, TensorSpec

Flat = Callable[..., Any]
_LIBRARIES: Final = tuple(
    os.path.dirname(os.path.abspath(module.__file__ or "")) + os.sep for module in (jax, jaxlib, os)
)
"""Folders whose code is not the user's: those of JAX, and Python's own."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A function for given shapes and dtypes.

    Attributes:
        program: what backends run; its results are ``results`` in this order.
        results: shape and dtype of what is returned, then of what is written.
        returned: for each result that is no written argument, its leaf in ``structure``.
        written: for each written argument, the leaf that it becomes.
        structure: how the function arranges its results.
    """

    program: Program
    results: tuple[TensorSpec, ...]
    returned: tuple[int, ...]
    written: tuple[int, ...]
    structure: jax.tree_util.PyTreeDef

    def arrange(self, returned: Sequence[Any], written: Sequence[Any]) -> Any:
        """The results as the function arranges them: those returned, and the written arguments."""
        leaves: list[Any] = [None] * (len(self.returned) + len(self.written))
        places, values = (*self.returned, *self.written), (*returned, *written)
        for place, value in zip(places, values, strict=True):
            leaves[place] = value
        return jax.tree.unflatten(self.structure, leaves)


class Function:
    """What a kernel computes with one structure of arguments and one set of static values.

    Attributes:
        name: the kernel's operator, for messages.
        token: names the function among all; equal in every process.
        call: takes the arrays, returns a tree of them.
        written: positions of arrays that the results of the same shape and dtype replace.
        weak: positions of plain numbers, which take the dtype of what they meet.
        numpy: computes the same on NumPy arrays, where there is such a function.
        gradient: ``(arrays, results, gradients of results) -> gradients of arrays``, lists all; or
            ``None``, where JAX derives it.
        hint: what to do, which an error says where it fails.
    """

    def __init__(
        self,
        name: str,
        text: str,
        call: Flat,
        *,
        written: Sequence[int] = (),
        weak: Iterable[int] = (),
        numpy: Flat | None = None,
        gradient: Flat | None = None,
        hint: str = "",
    ) -> None:
        self.name, self.text, self.call, self.hint = name, text, call, hint
        self.written, self.weak = tuple(written), frozenset(weak)
        self.numpy, self.gradient = numpy, gradient
        self.token = f"{name} {hashlib.sha256(text.encode()).hexdigest()[:20]}"
        self._traced: dict[tuple[TensorSpec, ...], Traced] = {}
        self.derived: dict[Hashable, Function] = {}

    def traced(self, specs: Sequence[TensorSpec]) -> Traced:
        """The function for arrays of these shapes and dtypes.

        Raises:
            KernelError: the function fails, returns no arrays, or writes what no result fits.
        """
        key = tuple(specs)
        if key not in self._traced:
            self._traced[key] = self._trace(key)
        return self._traced[key]

    def wide(self, specs: Sequence[TensorSpec]) -> bool:
        """Whether it is traced with 64-bit types."""
        return is_wide([spec.dtype for at, spec in enumerate(specs) if at not in self.weak])

    def avals(self, specs: Sequence[TensorSpec]) -> list[jax.ShapeDtypeStruct]:
        """What JAX traces the function with."""
        wide = self.wide(specs)
        return [
            jax.ShapeDtypeStruct(
                spec.shape, _narrow(spec.dtype, wide) if at in self.weak else spec.dtype,
                weak_type=at in self.weak and spec.dtype != "bool",
            )
            for at, spec in enumerate(specs)
        ]  # fmt: skip

    def _trace(self, specs: tuple[TensorSpec, ...]) -> Traced:
        structures: list[jax.tree_util.PyTreeDef] = []

        def flat(*arrays: jax.Array) -> list[jax.Array]:
            leaves, structure = jax.tree.flatten(self.call(*arrays))
            structures.append(structure)
            return [jnp.asarray(leaf) for leaf in leaves]

        wide = self.wide(specs)
        with jax.enable_x64(wide):
            try:
                closed = jax.make_jaxpr(flat)(*self.avals(specs))
            except KernelError:
                raise
            except Exception as error:
                raise self.failed(error, specs) from error
        results = [TensorSpec(str(aval.dtype), tuple(aval.shape)) for aval in closed.out_avals]
        for spec in results:
            if spec.dtype not in ITEMSIZE:
                raise KernelError(self._text(f"it returns {spec}, a dtype PyTorch lacks", specs))
        written = self._pairs(specs, results)
        returned = tuple(at for at in range(len(results)) if at not in written)
        order = (*returned, *written)
        program = JaxProgram(closed, wide, order, self._numpy())
        return Traced(
            program, tuple(results[at] for at in order), returned, written, structures[-1]
        )

    def _numpy(self) -> Flat | None:
        numpy = self.numpy
        return None if numpy is None else lambda *arrays: jax.tree.leaves(numpy(*arrays))

    def _pairs(self, specs: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> tuple[int, ...]:
        """For each written argument the first result of its shape and dtype that is still free."""
        taken: list[int] = []
        for at in self.written:
            fitting = (
                place
                for place, result in enumerate(results)
                if result == specs[at] and place not in taken
            )
            place = next(fitting, None)
            if place is None:
                what = f"argument {at}, {specs[at]}, is donated and no result has its shape"
                raise KernelError(self._text(what, specs, "donate what a result can replace"))
            taken.append(place)
        return tuple(taken)

    def failed(self, error: Exception, specs: Sequence[TensorSpec]) -> KernelError:
        """What is raised where the function raises ``error``."""
        lines = traceback.extract_tb(error.__traceback__)
        inner = [line for line in lines if _is_kernels(line.filename)]
        where = f" at {inner[-1].filename}:{inner[-1].lineno}" if inner else ""
        what = f"the kernel failed{where}: {type(error).__name__}: {str(error).strip()}"
        return KernelError(self._text(what, specs, self.hint))

    def _text(self, what: str, specs: Sequence[TensorSpec], hint: str = "") -> str:
        operands = [str(spec) for spec in specs]
        return describe(what, operator=self.name, operands=operands, source=user_line(), hint=hint)


def _is_kernels(filename: str) -> bool:
    nested = "site-packages" in filename and "site-packages" not in _LIBRARIES[-1]
    foreign = filename.startswith(_LIBRARIES[:-1] if nested else _LIBRARIES)
    return is_users(filename) and not foreign


def _narrow(dtype: str, wide: bool) -> str:
    """The dtype of a plain number: 64 bits where JAX has them."""
    return dtype if wide or not dtype.endswith("64") else dtype.replace("64", "32")


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape and dtype of a tensor, fake ones too."""
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
