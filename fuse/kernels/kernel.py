"""``fuse.kernel``: a JAX function as a PyTorch operator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, overload

import jax
import torch

from fuse.backends.xla.canonical import content
from fuse.device import lazy
from fuse.errors import KernelError, describe
from fuse.kernels import signature
from fuse.kernels.dynamo import outside
from fuse.kernels.function import Function, Traced, spec_of
from fuse.kernels.leaves import (
    as_tensor,
    gradients_like,
    has_tensor,
    hashable,
    is_array,
    kind_of_leaf,
    placed,
)
from fuse.kernels.operators import Operator, call, is_transformed
from fuse.trace.source import user_line

NAMESPACE: Final = "fuse_kernels"
POLICIES: Final = ("lower", "float32")
TRACED: Final = (
    "numbers given by position are traced, as by jax.jit; where the function must know one, give "
    "it by keyword"
)
_named: Final[dict[str, Kernel]] = {}


class Kernel:
    """A JAX function that takes and returns tensors, and is one operator of PyTorch.

    Made by ``fuse.kernel``. Called like the function, with tensors in the place of arrays.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        gradient: Callable[..., Any] | None = None,
        donate: Sequence[str] = (),
        numpy: Callable[..., Any] | None = None,
        autocast: str | None = None,
        text: str = "",
    ) -> None:
        self.function = function
        self.gradient = gradient.function if isinstance(gradient, Kernel) else gradient
        self.donate, self.numpy, self.text = tuple(donate), numpy, text
        self.signature = signature.read(function)
        self._static = {
            name: parameter.default
            for name, parameter in self.signature.parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is not parameter.empty
        }
        self.autocast = autocast
        unknown = [one for one in donate if one not in self.signature.parameters]
        if unknown:
            raise KernelError(describe(f"there is no parameter {unknown[0]!r} to donate"))
        if autocast is not None and autocast not in POLICIES:
            raise KernelError(describe(f"autocast is {autocast!r}, not one of {POLICIES}"))
        self.name = name or f"{NAMESPACE}::{_base_name(function)}"
        self._functions: dict[Hashable, Function] = {}
        self._declared: dict[Hashable, bool] = {}
        self._plain: signature.Plain | None = None
        self._operator: Operator | None = None
        if not text:
            self._plain = signature.plain(function, self.donate)
            self._define(explicit=name is not None)
            functools.update_wrapper(self, function, updated=())

    def _define(self, explicit: bool) -> None:
        """Make the operator, or take over that of an earlier kernel of this name and schema."""
        before = _named.get(self.name)
        if before is not None and not explicit:
            self.name, before = _free(self.name), None
        _named[self.name] = self
        schema = None if self._plain is None else self._plain.schema
        if before is not None:
            operator, before._operator = before._operator, None  # it gets one when it is called
            before.name = _free(self.name)
            before._functions.clear()  # which bear the name
            before._declared.clear()
            _named[before.name] = before
            if operator is not None and operator.schema == schema:
                operator.find, self._operator = self._find, operator
            elif operator is not None:
                self.name = _free(self.name)
                _named[self.name] = self
            if lazy.is_initialised():
                lazy.forget()
        if self._operator is None and schema is not None:
            self._make(schema)

    def _make(self, schema: str) -> Operator:
        self._operator = Operator(self.name, schema, self._find)
        if self.autocast is not None:
            self._operator.autocast(self.autocast)
        return self._operator

    def __repr__(self) -> str:
        schema = "" if self._plain is None else self._plain.schema
        return f"<fuse.kernel {self.name}{schema}>"

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the operator; results are tensors where the function returns arrays."""
        plain = self._plain
        if plain is not None and plain.takes(args, options) and not is_transformed():
            compiling = torch.compiler.is_compiling()
            operator = self._operator or self._make(plain.schema)
            if compiling and plain.results == len(self.donate) == 1:
                operator.overload(*args, **options)
                return args[plain.tensors.index(self.donate[0])]
            if not self.donate and (compiling or self._is_declared(args, options)):
                return operator.overload(*args, **options)
            if self.donate and not compiling and self._is_declared(args, options):
                return self._overwrite(operator, args, options)
        return self._general(args, options)

    def _overwrite(self, operator: Operator, args: Sequence[Any], options: dict[str, Any]) -> Any:
        returned = operator.unpack(operator.overload(*args, **options))
        traced, arrays = operator.traced(args, options)
        function, _ = self._find(args, options)
        return traced.arrange(returned, [arrays[at] for at in function.written])

    def _is_declared(self, args: Sequence[Any], options: dict[str, Any]) -> bool:
        """Whether the function returns what its schema says; found out once for static values."""
        key = tuple(value is None for value in args), hashable(options)
        if key not in self._declared:
            function, arrays = self._find(args, options)
            if any(isinstance(size, torch.SymInt) for array in arrays for size in array.shape):
                return True
            self._declared[key] = self._returns_declared(
                function.traced([spec_of(array) for array in arrays])
            )
        return self._declared[key]

    def _returns_declared(self, traced: Traced) -> bool:
        assert self._plain is not None
        leaves = [0] * self._plain.results
        declared = jax.tree.structure(tuple(leaves) if self._plain.tupled else leaves[0])
        return bool(traced.structure == declared)

    def _find(self, args: Sequence[Any], options: dict[str, Any]) -> tuple[Function, list[Any]]:
        """The function and arrays of a call of the plain operator."""
        assert self._plain is not None
        plain = self._plain
        static = self._static | options
        for name, kind in plain.types.items():
            if isinstance(static[name], list):
                static[name] = tuple(static[name])
            elif kind.startswith("float") and type(static[name]) is int:
                static[name] = float(static[name])
        given = [*args, *[None] * (len(plain.tensors) - len(args))]
        present = tuple(at for at, value in enumerate(given) if value is not None)
        key = (present, hashable(static))
        if key not in self._functions:
            self._functions[key] = self._plain_function(present, static)
        return self._functions[key], [given[at] for at in present]

    def _plain_function(self, present: tuple[int, ...], static: dict[str, Any]) -> Function:
        assert self._plain is not None
        size = len(self._plain.tensors)

        def filled(arrays: Sequence[Any]) -> list[Any]:
            given: list[Any] = [None] * size
            for at, array in zip(present, arrays, strict=True):
                given[at] = array
            return given

        def gradient(arrays: Sequence[Any], results: Any, grads: Any) -> list[Any]:
            assert self.gradient is not None
            found = self.gradient(tuple(filled(arrays)), results, grads, **static)
            found = found if isinstance(found, (list, tuple)) else (found,)
            return [found[at] for at in present]

        numpy = self.numpy
        return Function(
            self.name,
            f"{self.name} {present} {content(static)}",
            lambda *arrays: self.function(*filled(arrays), **static),
            written=[
                present.index(at)
                for at, name in enumerate(self._plain.tensors)
                if name in self.donate and at in present
            ],
            numpy=numpy and (lambda *arrays: numpy(*filled(arrays), **static)),
            gradient=gradient if self.gradient is not None else None,
        )

    @outside
    def _general(self, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """A call with trees, numbers, or values that no schema has: by the generic operator."""
        bound = self.signature.bind(*args, **options)
        static = {} if self.text else dict(self._static)
        dynamic: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            keyword = name in options or kind is inspect.Parameter.VAR_KEYWORD
            if keyword and not has_tensor(value):
                static[name] = value
            else:
                dynamic[name] = value
                static.pop(name, None)
        paths, structure = jax.tree_util.tree_flatten_with_path(dynamic)
        like = next((leaf for _, leaf in paths if isinstance(leaf, torch.Tensor)), None)
        if like is None:
            raise KernelError(self._text("it takes at least one tensor", args))
        names = [path[0].key for path, _ in paths]
        leaves = [placed(leaf, like) for _, leaf in paths]
        key = (structure, tuple(map(kind_of_leaf, leaves)), tuple(names), hashable(static))
        first = [at for at, leaf in enumerate(leaves) if is_array(leaf)]
        order = sorted(first, key=lambda at: names[at] not in self.donate)
        if key not in self._functions:
            self._functions[key] = self._general_function(key, leaves, order, static)
        function = self._functions[key]
        arrays = [as_tensor(leaves[at]) for at in order]
        traced = function.traced([spec_of(array) for array in arrays])
        return traced.arrange(call(function, arrays), arrays[: len(function.written)])

    def _general_function(
        self, key: tuple[Any, ...], leaves: Sequence[Any], order: list[int], static: dict[str, Any]
    ) -> Function:
        structure, kinds, names, _ = key
        fixed = [None if at in order else leaf for at, leaf in enumerate(leaves)]

        def arguments(arrays: Sequence[Any]) -> inspect.BoundArguments:
            given = list(fixed)
            for at, array in zip(order, arrays, strict=True):
                given[at] = array
            named = jax.tree.unflatten(structure, given) | static
            inorder = {name: named[name] for name in self.signature.parameters if name in named}
            return inspect.BoundArguments(self.signature, inorder)

        def run(arrays: Sequence[Any], function: Callable[..., Any]) -> Any:
            bound = arguments(arrays)
            return function(*bound.args, **bound.kwargs)

        numpy = self.numpy
        text = f"{self.name} {self.text} {structure} {content(kinds)} {order} {content(static)}"
        weak = [place for place, at in enumerate(order) if kinds[at] in ("int", "float")]
        return Function(
            f"{self.name}_call" if self._plain is not None else self.name,
            text,
            lambda *arrays: run(arrays, self.function),
            written=range(sum(names[at] in self.donate for at in order)),
            weak=weak,
            numpy=numpy and (lambda *arrays: run(arrays, numpy)),
            gradient=self._general_gradient(arguments, order, names),
            hint=TRACED if weak else "",
        )

    def _general_gradient(
        self,
        arguments: Callable[[Sequence[Any]], inspect.BoundArguments],
        order: list[int],
        dynamic: Sequence[str],
    ) -> Callable[..., list[Any]] | None:
        if self.gradient is None:
            return None
        function = self.gradient

        def gradient(arrays: Sequence[Any], results: Any, grads: Any) -> list[Any]:
            bound = arguments(arrays)
            found = function(bound.args, results, grads, **bound.kwargs)
            found = found if isinstance(found, (list, tuple)) else (found,)
            made = self.signature.bind_partial(*found).arguments
            flat = [  # in the order of the leaves: JAX sorts the names of a dict
                leaf
                for name in sorted(bound.arguments)
                if name in dynamic
                for leaf in gradients_like(bound.arguments[name], made.get(name))
            ]
            return [flat[at] for at in order]

        return gradient

    def _text(self, what: str, args: Sequence[Any]) -> str:
        operands = [type(value).__name__ for value in args]
        return describe(what, operator=self.name, operands=operands, source=user_line())


def _base_name(function: Any) -> str:
    name = str(getattr(getattr(function, "func", function), "__name__", ""))
    if not name.isidentifier():
        raise KernelError(describe(f"{function!r} has no name", hint='give name="mylib::name"'))
    return name


def _free(name: str) -> str:
    """The name with the first number that makes it new."""
    number = 2
    while f"{name}_{number}" in _named:
        number += 1
    return f"{name}_{number}"


@overload
def kernel(function: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *,
    name: str | None = None,
    gradient: Callable[..., Any] | None = None,
    donate: Sequence[str] = (),
    numpy: Callable[..., Any] | None = None,
    autocast: str | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    gradient: Callable[..., Any] | None = None,
    donate: Sequence[str] = (),
    numpy: Callable[..., Any] | None = None,
    autocast: str | None = None,
) -> Any:
    """Make a JAX function, with or without Pallas kernels in it, an operator of PyTorch.

    It is a decorator, with or without options. Positional arguments are tensors, trees of them
    (lists, dicts, what JAX has registered), or numbers, which are traced; what is given by keyword
    and is no tensor is static: another value is another program. Results are new tensors, or trees
    of them, of JAX's shapes and dtypes: they share no memory with arguments, but for ``donate``.
    A tensor of the device takes part in a chunk; one of the CPU is computed there, by JAX.

    The function sees 64-bit dtypes where an argument has one; where none has, JAX's own setting
    decides what 64-bit types become.

    Args:
        function: takes and returns JAX arrays. It is traced once for each shapes and dtypes.
        name: the operator's, ``namespace::name``; ``fuse_kernels::`` and the function's name
            where none is given. A second kernel of a given name takes it over.
        gradient: ``gradient(inputs, outputs, grads, **static)``, a JAX function: the gradient of
            each positional argument, ``None`` for one without; ``jax.vjp`` where none is given.
        donate: names of parameters whose tensors are overwritten, each by the first result of its
            shape and dtype; in the place of that result the call returns the tensor itself.
        numpy: computes the same on NumPy arrays, for the NumPy backend and for CPU tensors.
        autocast: what ``torch.autocast`` does to floating-point arguments but float64:
            ``"lower"`` casts to its dtype, ``"float32"`` to that, ``None`` nothing.

    Returns:
        A ``Kernel``, called like the function; with options alone, what makes one.

    Raises:
        KernelError: at once, for a name, parameter or policy that cannot be; at the call, where
            the function fails, with its name, shapes and lines.

    Example:
        ```python
        import jax.numpy as jnp


        @fuse.kernel
        def scaled(x, y):
            return x * jnp.tanh(y)


        x = torch.ones(3, device="tpu", requires_grad=True)
        scaled(x, torch.zeros(3, device="tpu")).sum().backward()
        print(x.grad.tolist())  # [0.0, 0.0, 0.0]
        ```
    """

    def make(function: Callable[..., Any]) -> Kernel:
        return Kernel(
            function, name=name, gradient=gradient, donate=donate, numpy=numpy, autocast=autocast
        )

    return make if function is None else make(function)
