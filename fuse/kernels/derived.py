"""Functions made of a function: its gradient, and itself over a batch. They are functions again,
so that gradients of gradients, and batches of them, need nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from fuse.backends.xla.functions import JaxProgram
from fuse.kernels.function import Flat, Function, Traced
from fuse.trace.spec import TensorSpec

Value = TypeVar("Value")


def is_differentiable(dtype: str) -> bool:
    """Whether values of a dtype have gradients."""
    return "float" in dtype or "complex" in dtype


def backward(function: Function, wanted: tuple[int, ...], size: int) -> Function:
    """The gradients of the arrays ``wanted`` of a function of ``size`` arrays.

    It takes the function's arrays, its results in the order of ``Traced.results``, and the
    gradients of those results that have one. JAX derives it by running the function again: what
    would have to be kept otherwise depends on shapes, and would be written and read once more
    where a chunk holds forward and backward pass, which XLA merges.
    """
    key = ("backward", wanted, size)
    if key not in function.derived:

        def call(*values: jax.Array) -> list[jax.Array]:
            return _backward(function, wanted, values[:size], values[size:])

        text = f"backward {wanted} {size} of {function.text}"
        name = f"{function.name}_backward"
        hint = "" if function.gradient is not None else HINT
        function.derived[key] = Function(name, text, call, weak=function.weak, hint=hint)
    return function.derived[key]


HINT = (
    "give fuse.kernel a gradient=, or wrap the function in jax.custom_vjp; JAX differentiates no "
    "pallas_call by itself"
)


def _backward(
    function: Function,
    wanted: tuple[int, ...],
    arrays: Sequence[jax.Array],
    rest: Sequence[jax.Array],
) -> list[jax.Array]:
    traced = function.traced([TensorSpec(str(array.dtype), array.shape) for array in arrays])
    made = rest[: len(traced.results)]
    given = iter(rest[len(traced.results) :])
    # PyTorch's gradient of a complex number is the conjugate of JAX's.
    gradients = [
        _conj(next(given)) if is_differentiable(spec.dtype) else np.zeros(spec.shape, _FLOAT0)
        for spec in traced.results
    ]
    if function.gradient is not None:
        outputs = traced.arrange(*_split(traced, made))
        found = function.gradient(arrays, outputs, traced.arrange(*_split(traced, gradients)))
        results = [found[at] for at in wanted]
    else:
        results = list(_derived(function, traced, arrays, wanted, gradients))
    return [
        jnp.zeros_like(arrays[at]) if found is None else _conj(found).astype(arrays[at].dtype)
        for at, found in zip(wanted, results, strict=True)
    ]


_FLOAT0 = jax.dtypes.float0


def _conj(value: jax.Array) -> jax.Array:
    return jnp.conj(value) if jnp.iscomplexobj(value) else value


def _split(traced: Traced, values: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
    first = len(traced.returned)
    return values[:first], values[first:]


def _derived(
    function: Function,
    traced: Traced,
    arrays: Sequence[jax.Array],
    wanted: tuple[int, ...],
    gradients: Sequence[jax.Array | np.ndarray],
) -> tuple[jax.Array, ...]:
    order = (*traced.returned, *traced.written)

    def of_wanted(*chosen: jax.Array) -> list[jax.Array]:
        given = list(arrays)
        for at, value in zip(wanted, chosen, strict=True):
            given[at] = value
        leaves = jax.tree.leaves(function.call(*given))
        return [jnp.asarray(leaves[at]) for at in order]

    _, pull = jax.vjp(of_wanted, *(arrays[at] for at in wanted))
    found: tuple[jax.Array, ...] = pull(list(gradients))
    return found


def reads(function: Function, specs: Sequence[TensorSpec]) -> tuple[bool, ...]:
    """Which of its arrays a function's results depend on: the others need not be kept for it."""
    program = function.traced(specs).program
    assert isinstance(program, JaxProgram)  # a loop's gradient is PyTorch's, and another loop
    closed = program.closed
    _, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals))
    return tuple(used)


def tangents(function: Function, wanted: tuple[int, ...], size: int) -> Function:
    """The directional derivative of a function of ``size`` arrays, which writes nothing.

    It takes the function's arrays and the tangents of those ``wanted``, and returns the tangents of
    the results that have one. JAX derives it: the user's ``gradient`` says nothing of it.
    """
    key = ("tangents", wanted, size)
    if key not in function.derived:

        def call(*values: jax.Array) -> list[jax.Array]:
            arrays = values[:size]
            direction = list(map(_zeros, arrays))
            for at, tangent in zip(wanted, values[size:], strict=True):
                direction[at] = tangent.astype(arrays[at].dtype)
            leaves, made = jax.jvp(
                lambda *given: list(map(jnp.asarray, jax.tree.leaves(function.call(*given)))),
                arrays,
                tuple(direction),
            )
            pairs = zip(leaves, made, strict=True)
            return [made for leaf, made in pairs if is_differentiable(str(leaf.dtype))]

        text = f"tangents {wanted} {size} of {function.text}"
        name = f"{function.name}_tangents"
        hint = "wrap the function in jax.custom_jvp, which gives it one"
        function.derived[key] = Function(name, text, call, weak=function.weak, hint=hint)
    return function.derived[key]


def _zeros(array: jax.Array) -> jax.Array | np.ndarray:
    """No direction; integers have no other."""
    if is_differentiable(str(array.dtype)):
        return jnp.zeros_like(array)
    return np.zeros(array.shape, _FLOAT0)


def functional(function: Function) -> Function:
    """The function with its results as one list of new arrays: nothing is written."""
    key = "functional"
    if key not in function.derived:
        given = function.gradient

        def gradient(arrays: Sequence[jax.Array], results: Any, grads: Any) -> Any:
            assert given is not None
            specs = [TensorSpec(str(array.dtype), array.shape) for array in arrays]
            structure = function.traced(specs).structure
            return given(
                arrays, *(jax.tree.unflatten(structure, leaves) for leaves in (results, grads))
            )

        function.derived[key] = Function(
            function.name,
            f"functional {function.text}",
            lambda *arrays: jax.tree.leaves(function.call(*arrays)),
            weak=function.weak,
            gradient=None if given is None else gradient,
        )
    return function.derived[key]


def batched(function: Function, dims: tuple[int | None, ...], size: int) -> Function:
    """The function for each of ``size`` samples: array ``i`` has them along ``dims[i]``.

    Results have them along their first dimension; nothing is written.
    """
    key = ("batched", dims, size)
    if key not in function.derived:
        pure = functional(function)
        function.derived[key] = Function(
            f"{function.name}_batch",
            f"batch {dims} {size} of {function.text}",
            jax.vmap(pure.call, dims, 0, axis_size=size),
            weak=function.weak,
            gradient=None if pure.gradient is None else _of_batch(pure.gradient, dims, size),
        )
    return function.derived[key]


def _of_batch(gradient: Flat, dims: tuple[int | None, ...], size: int) -> Flat:
    """The gradient for a batch: what all samples share gets the sum of theirs."""

    def of_one(arrays: list[jax.Array], results: Any, grads: Any) -> list[jax.Array]:
        return list(gradient(arrays, results, grads))

    every: Flat = jax.vmap(of_one, (list(dims), 0, 0), 0, axis_size=size)

    def batch(arrays: Sequence[jax.Array], results: Any, grads: Any) -> list[jax.Array | None]:
        return [
            None if found is None else found.sum(0) if at is None else jnp.moveaxis(found, 0, at)
            for found, at in zip(every(list(arrays), results, grads), dims, strict=True)
        ]

    return batch
