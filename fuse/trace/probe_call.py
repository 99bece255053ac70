"""A probe: one call of PyTorch's CPU kernel, on ones or zeros in place of its operands.

They lie in memory as the operands do. Of large ones there are fewer, sizes that were equal staying
so, and what broadcasts broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import torch

from fuse.trace.bind import bind
from fuse.trace.evaluate import Arguments
from fuse.trace.functional import base_name, find_overload, schema_of
from fuse.trace.node import HostArg, Node, NumberArg, Operand, TensorArg
from fuse.trace.spec import View

FEW: Final = 8
"""The longest dimension that a large call is asked about with."""


def read(node: Node) -> list[Operand]:
    """The operands that are arguments of the functional overload: not those of ``out=``."""
    positional, keyword = bind(node)
    arguments: list[Any] = [*positional, *keyword.values()]
    found = []
    while arguments:
        value = arguments.pop()
        if isinstance(value, tuple):
            arguments += value
        elif isinstance(value, TensorArg):
            found.append(node.operands[value.index])
    return found


class _StandIns(Arguments):
    """The arguments for the operator itself, its tensors made for the operands."""

    for_kernel = True

    def __init__(self, node: Node, make: Callable[[Operand], torch.Tensor]) -> None:
        super().__init__(node)
        self._make = make

    def tensor(self, operand: Operand) -> torch.Tensor:
        return self._make(operand)

    def host_tensor(self, value: HostArg) -> Any:
        # A number that PyTorch wrapped decides no dtype.
        dtype = getattr(torch, value.dtype)
        return value.number if value.wrapped else torch.tensor(value.number, dtype=dtype)


def call(
    node: Node, make: Callable[[Operand], torch.Tensor], overload: Any = None, **more: Any
) -> Any:
    """What PyTorch's functional overload gives for ``node``'s arguments, its tensors ``make``'s.

    Or what ``overload`` gives, which takes the same; ``more`` are keyword arguments beside them.
    """
    positional, keyword = _StandIns(node, make).bound()
    return (overload or find_overload(node.target))(*positional, **keyword, **more)


def is_pointwise(node: Node) -> bool:
    """Whether each element is made of those in its place."""
    tags = find_overload(node.target).tags
    return torch.Tag.pointwise in tags or base_name(node.target) == "floor_divide"  # lacks it


def cut(view: View) -> View:
    """The same of fewer elements, in the same order in memory."""
    shape = tuple(min(size, FEW) for size in view.shape)
    return View(view.dtype, shape, in_order_of(view.strides, shape))


def in_order_of(strides: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Dense strides for ``shape``, its dimensions in the order of others; 0 where those are."""
    found, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (strides[dim], -dim)):
        if strides[dim] != 0:
            found[dim] = step
            step *= max(shape[dim], 1)
    return tuple(found)


def cut_sizes(value: object) -> Any:
    """An argument whose sizes are as ``cut``'s."""
    if isinstance(value, tuple):
        return tuple(cut_sizes(item) for item in value)
    return min(value, FEW) if isinstance(value, int) and not isinstance(value, bool) else value


def _filled(view: View, number: int) -> torch.Tensor:
    """A tensor of the view's form, of one number; without the gaps of one that has many."""
    span = view.last - view.offset + 1 if view.numel else 0
    strides = view.strides
    if span > 2 * view.numel:
        strides, span = in_order_of(strides, view.shape), view.numel
    memory = torch.full((span,), number, dtype=getattr(torch, view.dtype))
    return memory.as_strided(view.shape, strides)


class Question:
    """A call of which the CPU's kernel is asked; ``large`` ones with fewer elements."""

    def __init__(self, node: Node, large: bool) -> None:
        self.node, self.large = node, large
        if large:
            operands = tuple(replace(one, view=cut(one.view)) for one in node.operands)
            args = tuple(cut_sizes(value) for value in node.args)
            self.node = replace(node, operands=operands, args=args)
        # Zeros are indices of whatever has an element, and no numbers to divide by.
        self._number = 1 if is_pointwise(node) else 0
        self.overload = find_overload(node.target.removesuffix("_overrideable"))
        self.made: Any = None  # by the kernel, when it last raised nothing

    def error(
        self, dtypes: Mapping[int, str] = MappingProxyType({}), node: Node | None = None
    ) -> Exception | None:
        """What the kernel raises, but that there is none; of other ``dtypes``, by operand."""
        overload = self.overload
        if overload is None:
            return None  # an operator of devices alone, which the CPU has under no name
        drawn: dict[str, Any] = {}
        if any(argument.name == "generator" for argument in overload._schema.arguments):
            drawn["generator"] = torch.Generator()
        elif torch.Tag.nondeterministic_seeded in overload.tags:
            return None  # asking would draw from the host's generator

        def make(operand: Operand) -> torch.Tensor:
            dtype = dtypes.get(id(operand), operand.view.dtype)
            return _filled(replace(operand.view, dtype=dtype), self._number)

        try:
            self.made = call(node or self.node, make, overload, **drawn)
        except NotImplementedError as error:
            return None if "Could not run" in str(error) or "overrideable" in str(error) else error
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return error
        return None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for questions that have one answer."""
        views = (operand.view for operand in self.node.operands)
        forms = tuple((view.dtype, view.shape, view.strides) for view in views)
        return self.node.op, self.large, forms, *map(str, self.node.args)

    def counts(self, names: frozenset[str]) -> bool:
        """Whether an argument of none of these names is a number of elements, or a place.

        With fewer elements that may be one of no call that there is.
        """
        arguments = zip(schema_of(self.node.op).arguments, self.node.args, strict=False)
        return any(
            argument.name not in names and "int" in str(argument.type) and value is not None
            for argument, value in arguments
        )

    def is_about_halves(self) -> bool:
        """Whether it raises nothing with single precision in their place."""
        names = ("bfloat16", "float16", "float8")
        halves = [one for one in self.node.operands if one.view.dtype.startswith(names)]
        return bool(halves) and self.error({id(one): "float32" for one in halves}) is None

    def with_other_dtypes(self) -> Iterator[Exception | None]:
        """What it raises with one operand, or all of a dtype, of another."""
        given = read(self.node)
        for other in ("float32", "int64"):
            for dtype in {operand.view.dtype for operand in given} - {other}:
                yield self.error({id(one): other for one in given if one.view.dtype == dtype})
            for one in given:
                yield self.error({id(one): other})

    def with_other_numbers(self, names: frozenset[str] | None) -> Iterator[Exception | None]:
        """What it raises with one of its arguments, of those names if any, another number."""
        for place, argument in enumerate(schema_of(self.node.op).arguments):
            if names is not None and argument.name not in names:
                continue
            for number in (0, 1):
                args = list(self.node.args)
                args[place] = _replaced(args[place], number)
                if args[place] != self.node.args[place]:
                    yield self.error(node=replace(self.node, args=tuple(args)))


def _replaced(value: object, number: int) -> Any:
    """An argument with all its numbers another."""
    if isinstance(value, tuple):
        return tuple(_replaced(item, number) for item in value)
    if isinstance(value, (NumberArg, HostArg)):
        other: Any = type(value.number)(number)
        return replace(value, number=other)
    return number if isinstance(value, int) and not isinstance(value, bool) else value
