"""Autograd of kernels: what a call keeps, and the call of its gradient's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad

from fuse.errors import KernelError, describe
from fuse.kernels.derived import backward, batched, is_differentiable, reads, tangents
from fuse.kernels.function import Function, spec_of
from fuse.trace.source import user_line
from fuse.trace.spec import TensorSpec

Formula = tuple[Callable[..., Any] | None, Callable[..., Any]]
"""``setup_context`` and ``backward`` as ``torch.library.register_autograd`` takes them."""
Call = Callable[[Function, Sequence[torch.Tensor]], list[torch.Tensor]]


class Differentiated(Protocol):
    """What an operator has that gradients need."""

    name: str
    overload: Any
    writes: bool
    formula: Formula | None
    find: Callable[[Sequence[Any], dict[str, Any]], tuple[Function, list[Any]]]

    def pack(self, results: Sequence[Any]) -> Any:
        """Results as the schema returns them."""

    def unpack(self, results: Any) -> list[Any]:
        """The inverse of ``pack``."""


def register(operator: Differentiated, library: torch.library.Library, call: Call) -> None:
    """Give the operator its gradient, which is a ``call`` of another."""
    if operator.writes:
        base = operator.name.partition("::")[2]
        library.impl(base, _overwriting(operator, call), "Autograd", with_keyset=True)
        return

    def setup(
        ctx: Any, inputs: Sequence[Any], output: Any, keyword_only_inputs: Any = None
    ) -> None:
        if operator.formula is not None:
            if operator.formula[0] is not None:
                options = {} if keyword_only_inputs is None else _keyword(keyword_only_inputs)
                operator.formula[0](ctx, inputs, output=output, **options)
            return
        function, arrays = operator.find(inputs, keyword_only_inputs or {})
        ctx.inputs = [_is_list(value) or isinstance(value, torch.Tensor) for value in inputs]
        ctx.listed = any(map(_is_list, inputs))
        flags = [
            flag
            for flag, value in zip(ctx.needs_input_grad, _opened(inputs), strict=False)
            if isinstance(value, torch.Tensor)
        ]
        results = operator.unpack(output)
        _keep(ctx, function, arrays, flags, results)
        ctx.mark_non_differentiable(
            *(one for one in results if not is_differentiable(spec_of(one).dtype))
        )

    def gradient(ctx: Any, *grads: Any) -> Any:
        if operator.formula is not None:
            return operator.formula[1](ctx, *grads)
        listed = len(grads) == 1 and isinstance(grads[0], (list, tuple))
        found = _gradients(ctx, grads[0] if listed else grads, call)
        if ctx.listed:
            return found, None
        given = iter(found)
        return tuple(next(given) if tensor else None for tensor in ctx.inputs)

    torch.library.register_autograd(operator.name, gradient, setup_context=setup, lib=library)


def _keyword(values: Any) -> dict[str, Any]:
    """How a ``setup_context`` is told keyword-only arguments: not at all where there are none."""
    return {"keyword_only_inputs": values}


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _opened(values: Sequence[Any]) -> list[Any]:
    return [item for value in values for item in (value if _is_list(value) else [value])]


def _keep(
    ctx: Any,
    function: Function,
    arrays: Sequence[torch.Tensor],
    flags: Sequence[bool],
    results: Sequence[torch.Tensor],
) -> None:
    """Note on ``ctx`` what the gradient's function takes; keep the tensors that it reads."""
    specs = [spec_of(tensor) for tensor in (*arrays, *results)]
    ctx.function, ctx.specs, ctx.size = function, specs, len(arrays)
    ctx.wanted = tuple(
        at for at, flag in enumerate(flags) if flag and is_differentiable(specs[at].dtype)
    )
    ctx.used = _used(function, ctx.wanted, len(arrays), specs)
    tensors = zip((*arrays, *results), ctx.used, strict=True)
    ctx.save_for_backward(*(tensor for tensor, kept in tensors if kept))


def _check(function: Function, arrays: Sequence[torch.Tensor], flags: Sequence[bool]) -> None:
    """Refuse what is to overwrite a tensor that its gradient reads, before it does."""
    specs = [spec_of(tensor) for tensor in arrays]
    wanted = tuple(at for at, flag in enumerate(flags) if flag)
    results = function.traced(specs).results
    used = _used(function, wanted, len(arrays), [*specs, *results])
    for at in function.written:
        if used[at]:
            raise KernelError(
                describe(
                    f"the gradient of the kernel reads argument {at}, which it overwrites",
                    operator=function.name,
                    operands=[str(spec) for spec in specs],
                    source=user_line(),
                    hint="give gradient= a function that does not, or call it on a clone()",
                )
            )


def _used(
    function: Function, wanted: tuple[int, ...], size: int, specs: Sequence[TensorSpec]
) -> Sequence[bool]:
    if any(isinstance(extent, torch.SymInt) for spec in specs for extent in spec.shape):
        return [True] * len(specs)
    gradients = [spec for spec in specs[size:] if is_differentiable(spec.dtype)]
    try:
        return reads(backward(function, wanted, size), [*specs, *gradients])[: len(specs)]
    except KernelError:
        if function.written:
            raise
        return [True] * len(specs)  # the error is the backward pass's, if there is one


def _gradients(ctx: Any, grads: Sequence[Any], call: Call) -> list[torch.Tensor | None]:
    """The gradient of each array, ``None`` where nobody wants it."""
    like = next(grad for grad in grads if grad is not None)

    def empty(spec: TensorSpec) -> torch.Tensor:
        made: torch.Tensor = like.new_empty(spec.shape, dtype=getattr(torch, spec.dtype))
        return made

    saved = iter(ctx.saved_tensors)
    given = [
        next(saved) if kept else empty(spec) for spec, kept in zip(ctx.specs, ctx.used, strict=True)
    ]
    for spec, grad in zip(ctx.specs[ctx.size :], grads, strict=True):
        if is_differentiable(spec.dtype):
            given.append(empty(spec).zero_() if grad is None else grad)
    made = iter(call(backward(ctx.function, ctx.wanted, ctx.size), given))
    return [next(made) if at in ctx.wanted else None for at in range(ctx.size)]


def _overwriting(operator: Differentiated, call: Call) -> Callable[..., Any]:
    """The Autograd kernel of an operator that writes, for which PyTorch has no formula."""

    class Overwriting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keyset: Any, args: Any, options: Any, *arrays: Any) -> Any:
            function, _ = operator.find(args, options)
            _check(function, arrays, ctx.needs_input_grad[3:])
            below = keyset & torch._C._after_autograd_keyset
            with torch._C._AutoDispatchBelowAutograd():
                returned = operator.unpack(operator.overload.redispatch(below, *args, **options))
            written = _changed(function, arrays)
            ctx.mark_dirty(*written)
            results = (*returned, *written)
            _keep(ctx, function, arrays, ctx.needs_input_grad[3:], results)
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None, None, None, *_gradients(ctx, grads, call)

    def kernel(keyset: Any, *args: Any, **options: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            function, arrays = operator.find(args, options)
            results = Overwriting.apply(  # type: ignore[no-untyped-call]
                keyset, args, options, *arrays
            )
            return operator.pack(results[: len(results) - len(function.written)])
        below = keyset & torch._C._after_autograd_keyset
        with torch._C._AutoDispatchBelowAutograd():
            made = operator.overload.redispatch(below, *args, **options)
        _changed(*operator.find(args, options))
        return made

    return kernel


def _changed(function: Function, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that have been overwritten, and are known to autograd as such."""
    written = [arrays[at] for at in function.written]
    for tensor in written:
        torch.autograd.graph.increment_version(tensor)
    return written


def transformed(
    function: Function, arrays: Sequence[torch.Tensor], call: Call
) -> Sequence[torch.Tensor]:
    """The results of a function that writes nothing, under transforms of ``torch.func``.

    They see no gradient formula of an operator, but those of ``autograd.Function``.
    """

    class Transformed(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(call(function, inputs))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _keep(ctx, function, inputs, ctx.needs_input_grad, output)
            if forward_ad._current_level >= 0:  # under torch.func.jvp as well
                ctx.save_for_forward(*inputs)
            dtypes = [(one, spec_of(one).dtype) for one in output]
            ctx.mark_non_differentiable(*(one for one, d in dtypes if not is_differentiable(d)))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return tuple(_gradients(ctx, grads, call))

        @staticmethod
        def jvp(ctx: Any, *given: Any) -> Any:
            directions = [(at, one) for at, one in enumerate(given) if one is not None]
            wanted = tuple(at for at, _ in directions if is_differentiable(ctx.specs[at].dtype))
            tensors = [*ctx.saved_tensors, *(one for at, one in directions if at in wanted)]
            made = iter(call(tangents(function, wanted, len(given)), tensors))
            results = ctx.specs[ctx.size :]
            return tuple(next(made) if is_differentiable(one.dtype) else None for one in results)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *inputs: torch.Tensor) -> Any:
            every = batched(function, in_dims, info.batch_size)
            return tuple(call(every, inputs)), 0

    results: tuple[torch.Tensor, ...]
    results = Transformed.apply(*arrays)  # type: ignore[no-untyped-call]
    return results
