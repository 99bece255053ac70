"""Operators of ``torch.library`` that call functions: on fakes, on the CPU, batched, autocast.

On the device they need no kernel: the recorder takes every operator, and the node of a call asks
``MAKERS`` for its program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch.autograd import forward_ad

from fuse.backends.functions import MAKERS, Program
from fuse.errors import KernelError
from fuse.kernels import gradients
from fuse.kernels.derived import batched, functional
from fuse.kernels.function import Function, Traced, spec_of
from fuse.kernels.host import to_numpy, to_tensor
from fuse.kernels.symbolic import result_shapes
from fuse.trace.bind import bind
from fuse.trace.node import HostArg, Node, TensorArg
from fuse.trace.spec import TensorSpec

Find = Callable[[Sequence[Any], dict[str, Any]], tuple[Function, list[Any]]]
FUNCTIONS: Final[dict[str, Function]] = {}
"""Those that generic operators call, by token."""
AUTOCAST_KEYS: Final = {"tpu": "AutocastPrivateUse1", "cpu": "AutocastCPU"}


@cache
def library(namespace: str) -> torch.library.Library:
    """Where the operators of a namespace are defined; they last as long as the process."""
    return torch.library.Library(namespace, "FRAGMENT")


class Operator:
    """One operator.

    Attributes:
        name: qualified, ``mylib::rope``.
        find: from a call's arguments to the function and its arrays, in order.
        overload: what PyTorch calls.
    """

    def __init__(self, name: str, schema: str, find: Find) -> None:
        """Define it. Raises ``KernelError`` where PyTorch has one of that name."""
        self.name, self.schema, self.find = name, schema, find
        self.formula: gradients.Formula | None = None
        namespace, _, base = name.partition("::")
        self._library = library(namespace)
        try:
            self._library.define(f"{base}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        except RuntimeError as error:
            raise KernelError(f"the operator {name}{schema} cannot be defined: {error}") from error
        self.overload: Any = getattr(getattr(torch.ops, namespace), base).default
        self.writes = self.overload._schema.is_mutable
        self._library.impl(base, self._on_host, "CPU")
        torch.library.register_fake(name, self._fake, lib=self._library)
        torch.library.register_vmap(name, self._batched, lib=self._library)
        gradients.register(self, self._library, call)
        MAKERS[name] = self._program

    def autocast(self, policy: str) -> None:
        """Cast floating-point arrays first, where autocast is on: ``lower`` or ``float32``."""
        for device, key in AUTOCAST_KEYS.items():
            self._library.impl(self.name.partition("::")[2], self._casting(device, policy), key)

    def _casting(self, device: str, policy: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            dtype = torch.float32 if policy == "float32" else torch.get_autocast_dtype(device)

            def cast(value: Any) -> Any:
                if isinstance(value, (list, tuple)):
                    return [cast(item) for item in value]
                floating = isinstance(value, torch.Tensor) and value.is_floating_point()
                return value.to(dtype) if floating and value.dtype != torch.float64 else value

            with torch.autocast(device, enabled=False):
                return self.overload(*map(cast, args), **options)

        return call

    def pack(self, results: Sequence[Any]) -> Any:
        """Results that are returned, as the schema says: nothing, one, several, or a list."""
        returns = self.overload._schema.returns
        if len(returns) == 1 and str(returns[0].type) != "Tensor":
            return list(results)
        if len(results) != len(returns):
            raise KernelError(
                f"{self.name} is declared with {len(returns)} results and its function returns "
                f"{len(results)}; call it as a Python function, or annotate what it returns"
            )
        return (None, results[0] if results else None, tuple(results))[min(len(returns), 2)]

    def unpack(self, results: Any) -> list[Any]:
        """The inverse of ``pack``."""
        if results is None:
            return []
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def traced(self, args: Sequence[Any], options: dict[str, Any]) -> tuple[Traced, list[Any]]:
        """The function of a call on tensors, traced for them, and the tensors."""
        function, arrays = self.find(args, options)
        return function.traced([spec_of(array) for array in arrays]), arrays

    def _on_host(self, *args: Any, **options: Any) -> Any:
        function, arrays = self.find(args, options)
        traced = function.traced([spec_of(array) for array in arrays])
        found = traced.program.on_host([to_numpy(array) for array in arrays])
        made = [to_tensor(array) for array in found]
        first = len(traced.returned)
        for at, value in zip(function.written, made[first:], strict=True):
            arrays[at].copy_(value)
        return self.pack(made[:first])

    def _fake(self, *args: Any, **options: Any) -> Any:
        function, arrays = self.find(args, options)
        returned = result_shapes(function, arrays)
        like = _representative(arrays)
        return self.pack([like.new_empty(shape, dtype=dtype) for dtype, shape in returned])

    def _batched(self, info: Any, in_dims: Any, *args: Any, **options: Any) -> Any:
        function, arrays = self.find(args, options)
        dims = tuple(_flat_dims(args, in_dims))
        specs = [_sample(array, dim) for array, dim in zip(arrays, dims, strict=True)]
        traced = function.traced(specs)
        every = batched(function, dims, info.batch_size)
        found = call_operator(every, arrays)  # PyTorch has taken this transform off already
        for at, leaf in zip(function.written, traced.written, strict=True):
            dim = dims[at]
            if dim is None:
                raise KernelError(
                    f"vmap: {self.name} overwrites argument {at}, which has no batch dimension, "
                    "with results that have one; give it one, or clone() it"
                )
            arrays[at].copy_(found[leaf].movedim(0, dim))
        returned = [found[at] for at in traced.returned]
        made = self.pack(returned)
        return made, None if made is None else torch.utils._pytree.tree_map(lambda _: 0, made)

    def _program(self, node: Node) -> Program:
        positional, keyword = bind(node)

        def spec(value: object) -> Any:
            if isinstance(value, TensorArg):
                return node.operands[value.index].view.spec
            if isinstance(value, HostArg):
                return TensorSpec(value.dtype, ())
            if isinstance(value, tuple) and any(isinstance(i, (TensorArg, HostArg)) for i in value):
                return [spec(item) for item in value]
            return value

        function, specs = self.find([spec(value) for value in positional], keyword)
        return function.traced(specs).program


def _flat_dims(args: Sequence[Any], dims: Sequence[Any]) -> list[int | None]:
    """The batch dimension of every tensor, in order."""
    found: list[int | None] = []
    for value, dim in zip(args, dims, strict=False):
        if isinstance(value, torch.Tensor):
            found.append(dim)
        elif isinstance(value, (list, tuple)) and any(isinstance(i, torch.Tensor) for i in value):
            found += [None] * len(value) if dim is None else list(dim)
    return found


def _sample(array: torch.Tensor, dim: int | None) -> TensorSpec:
    spec = spec_of(array)
    if dim is None:
        return spec
    shape = list(spec.shape)
    del shape[dim]
    return TensorSpec(spec.dtype, tuple(shape))


def _representative(arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensor whose device the results have: any but a plain number."""
    return next((array for array in arrays if array.dim() or array.device.type != "cpu"), arrays[0])


def _listed(args: Sequence[Any], options: dict[str, Any]) -> tuple[Function, list[Any]]:
    """What a generic operator calls: its last argument names it."""
    *lists, token = [*args, *options.values()]
    if token not in FUNCTIONS:
        raise KernelError(
            f"there is no function {token!r} in this process: call the kernel once in the way in "
            "which the program calls it, which makes it known"
        )
    return FUNCTIONS[token], [array for one in lists for array in one]


@cache
def generic(name: str, writes: bool) -> Operator:
    """The operator ``name`` of any number of tensors, whose last argument is a token.

    One that writes takes the tensors that it overwrites first, as a list of their own.
    """
    written = "Tensor(a!)[] written, " if writes else ""
    return Operator(name, f"({written}Tensor[] tensors, str function) -> Tensor[]", _listed)


def is_transformed() -> bool:
    """Whether ``torch.func`` or forward-mode differentiation follows the calls of this thread."""
    if torch._C._are_functorch_transforms_active():
        return True
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def call(function: Function, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the function returns, by its generic operator; what it writes comes first in arrays."""
    if is_transformed():
        return _call_transformed(function, arrays)
    return call_operator(function, arrays)


def call_operator(function: Function, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same, which transforms of ``torch.func`` see as an operator like any other."""
    count = len(function.written)
    FUNCTIONS[function.token] = function
    operator = generic(f"{function.name}{'_' if count else ''}", bool(count))
    lists = [list(arrays[:count])] if count else []
    made: list[torch.Tensor] = operator.overload(*lists, list(arrays[count:]), function.token)
    return made


def _call_transformed(function: Function, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    pure = functional(function)
    found = gradients.transformed(pure, arrays, call)
    traced = function.traced([spec_of(array) for array in arrays])
    for at, leaf in zip(function.written, traced.written, strict=True):
        arrays[at].copy_(found[leaf])
    return [found[at] for at in traced.returned]
