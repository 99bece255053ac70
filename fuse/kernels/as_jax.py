"""``fuse.as_jax``: a module or function of PyTorch as a JAX function; ``fuse.to_stablehlo``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
import torch
from jax import export
from torch._subclasses.fake_tensor import FakeTensorMode

from fuse.backends.xla.emit import emit_steps
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import RULES
from fuse.bounded import Bounded
from fuse.errors import KernelError, describe
from fuse.kernels.interchange import to_jax
from fuse.kernels.leaves import hashable
from fuse.trace.decompose import CannotDecompose, Decomposition, graph_steps
from fuse.trace.random_blocks import is_random

TENSOR: Final = object()
MOST_PROGRAMS: Final = 1024
"""Shapes and static values that a function remembers, up to some 100 kB each."""


@dataclass(frozen=True)
class _Program:
    """A function for arrays of given shapes: its steps, and how its results are arranged.

    Attributes:
        steps: from the arrays to the results that are tensors.
        results: for each leaf of what the function returns, the value it is, or ``TENSOR`` for the
            next tensor.
        structure: how the leaves are arranged.
    """

    steps: Decomposition
    results: tuple[Any, ...]
    structure: torch.utils._pytree.TreeSpec


class JaxFunction:
    """What ``as_jax`` makes: called with arrays of JAX, under its transformations too.

    Attributes:
        params: for a module, its parameters and buffers by name, as arrays: its first argument.
            Else empty.
    """

    def __init__(self, target: Callable[..., Any]) -> None:
        """``target``: the module or function."""
        self._target = target
        self._is_module = isinstance(target, torch.nn.Module)
        self._programs: Bounded[Hashable, _Program] = Bounded(MOST_PROGRAMS)
        self.__name__ = str(getattr(target, "__name__", type(target).__name__))
        self.params: dict[str, jax.Array] = {}
        if isinstance(target, torch.nn.Module):
            named = [*target.named_parameters(), *target.named_buffers()]
            self.params = {name: to_jax(value.detach()) for name, value in named}

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What the target returns for these arrays, and trees of them; the rest is static."""
        leaves, structure, at = _flat((args, options))
        kinds = tuple((str(leaves[place].dtype), tuple(leaves[place].shape)) for place in at)
        static = [None if place in at else leaf for place, leaf in enumerate(leaves)]
        key = (structure, kinds, hashable({str(place): leaf for place, leaf in enumerate(static)}))
        program = self._programs.memo(key, lambda: self._traced(kinds, at, static, structure))
        platform = Platform(jax.default_backend())
        with jax.enable_x64(True):  # the rules say each dtype
            arrays = [jax.numpy.asarray(leaves[place]) for place in at]
            made = iter(emit_steps(program.steps, arrays, platform))
        found = [_own(next(made)) if leaf is TENSOR else leaf for leaf in program.results]
        return torch.utils._pytree.tree_unflatten(found, program.structure)

    def _traced(
        self,
        kinds: Sequence[tuple[str, tuple[int, ...]]],
        at: Sequence[int],
        static: Sequence[Any],
        structure: jax.tree_util.PyTreeDef,
    ) -> _Program:
        arranged: list[tuple[tuple[Any, ...], torch.utils._pytree.TreeSpec]] = []

        def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
            leaves = list(static)
            for place, tensor in zip(at, tensors, strict=True):
                leaves[place] = tensor
            args, options = jax.tree.unflatten(structure, leaves)
            found, shape = torch.utils._pytree.tree_flatten(self._called(args, options))
            kept = [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in found]
            arranged.append((tuple(kept), shape))
            return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]

        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                fakes = [
                    torch.empty(shape, dtype=getattr(torch, dtype), device="tpu")
                    for dtype, shape in kinds
                ]
                steps, _ = graph_steps(call, fakes, RULES.__contains__)
            for step in steps.steps:
                if is_random(step.target):
                    raise CannotDecompose(f"{step.target} draws random numbers: .eval(), perhaps")
        except CannotDecompose as error:
            text = describe(
                f"it is no function of JAX: {error}",
                operator=self.__name__,
                operands=[f"{dtype}{list(shape)}" for dtype, shape in kinds],
                hint="what writes its arguments or buffers, reads values or draws cannot be one",
            )
            raise KernelError(text) from error
        return _Program(steps, *arranged[-1])

    def _called(self, args: Sequence[Any], options: dict[str, Any]) -> Any:
        if not self._is_module:
            return self._target(*args, **options)
        return torch.func.functional_call(self._target, args[0], tuple(args[1:]), options)  # type: ignore[arg-type]


def as_jax(target: Callable[..., Any]) -> JaxFunction:
    """A module or function of PyTorch as a function of JAX.

    It is traced for the shapes and dtypes that it is called with, and written in JAX's operations
    by the device's rules: ``jax.jit``, ``jax.grad``, ``jax.vmap`` over what it returns, and
    ``jax.export`` work on it. Nothing of it runs in PyTorch.

    Args:
        target: a ``torch.nn.Module`` or a function of tensors. It must not draw random numbers,
            read values on the host, or write its arguments: a module with dropout or batch norm is
            in ``eval()``.

    Returns:
        The function. One of a module takes a dictionary of parameters and buffers first, and
        has the module's own as ``params``, which share memory with its tensors on the device.
        Results are arranged as in PyTorch; 64-bit ones follow ``jax_enable_x64``.

    Raises:
        KernelError: when it is called: the target cannot be a function of JAX; the text says why.

    Example:
        ```python
        import jax
        import jax.numpy as jnp

        model = torch.nn.Linear(3, 2)
        f = fuse.as_jax(model)
        loss = lambda params, x: (f(params, x) ** 2).sum()
        grads = jax.jit(jax.grad(loss))(f.params, jnp.ones((4, 3)))
        print(grads["weight"].shape)  # (2, 3)
        ```
    """
    return JaxFunction(target)


def to_stablehlo(
    target: Callable[..., Any], *args: Any, platforms: Sequence[str] | None = None
) -> export.Exported:
    """A module or function of PyTorch as a StableHLO program, its weights being arguments.

    Args:
        target: as for ``as_jax``.
        args: tensors, or trees of them, of the program's shapes and dtypes; their values are not
            read. What is no tensor is static.
        platforms: what it is lowered for, JAX's names; by default the one that JAX has.

    Returns:
        JAX's exported program: ``mlir_module()`` is its text, ``call`` runs it, with the dictionary
        of parameters first where the target is a module.

    Raises:
        KernelError: the target cannot be a function of JAX; the text says why.

    Example:
        ```python
        program = fuse.to_stablehlo(torch.nn.Linear(3, 2), torch.ones(4, 3))
        print("stablehlo.dot_general" in program.mlir_module())  # True
        ```
    """
    function = as_jax(target)
    given = ([function.params] if isinstance(target, torch.nn.Module) else []) + list(args)
    leaves, structure, at = _flat(given)
    specs = [
        jax.ShapeDtypeStruct(tuple(leaves[place].shape), _name(leaves[place].dtype)) for place in at
    ]

    def flat(*arrays: jax.Array) -> Any:
        filled = list(leaves)
        for place, array in zip(at, arrays, strict=True):
            filled[place] = array
        return jax.tree.leaves(function(*jax.tree.unflatten(structure, filled)))

    names = None if platforms is None else list(platforms)
    return export.export(jax.jit(flat), platforms=names)(*specs)


def _flat(tree: Any) -> tuple[list[Any], jax.tree_util.PyTreeDef, list[int]]:
    """The leaves of a tree, ``None`` among them, its structure, and which leaves are arrays."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda leaf: leaf is None)
    return leaves, structure, [at for at, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else str(dtype)


def _own(array: Any) -> jax.Array:
    """A result as JAX has it by its own setting of 64 bits."""
    wanted = jax.dtypes.canonicalize_dtype(array.dtype)
    return (
        jax.numpy.asarray(array)
        if array.dtype == wanted
        else jax.lax.convert_element_type(array, np.dtype(wanted))
    )
