"""Random overloads that are one draw each, for every backend."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from fuse.backends.context import A, Operation, Register, Result, Rule

Shape = tuple[int, ...]
DIGITS: Final = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Bits of each dtype's significand."""
LAST: Final = 2**32 - 1
"""The attempt whose block is that of numbers beside those that may be rejected."""
MOST_ATTEMPTS: Final = 256
"""More than any element has: the worst of these methods accepts 7 of 10."""
LARGE: Final = 10
"""Expected counts from which rejection is faster than going through them one by one."""
MOST_STEPS: Final = 128
"""Counts as large have a probability below 1e-80 where fewer than ``LARGE`` are expected."""


def work_dtype(dtype: str) -> str:
    """The dtype draws of ``dtype`` are made in."""
    return "float64" if dtype == "float64" else "float32"


def _largest(dtype: str) -> int:
    """The largest value of ``random_()``: the integer type's, or the last exact integer."""
    if dtype == "bool":
        return 1
    return 2 ** DIGITS[dtype] if "float" in dtype else int(np.iinfo(dtype).max)


def register_numbers(rule: Register, uniform: Rule, normal: Rule) -> None:
    """Make rules of ``uniform(ctx)`` and ``normal(ctx)``: standard draws of the promised result."""
    for draw, name in ((uniform, "rand"), (normal, "randn")):

        @functools.wraps(draw)
        def standard(
            ctx: Operation[A], size_or_like: Any, dtype: str | None = None, draw: Rule = draw
        ) -> Result:
            return draw(ctx)

        rule(name, f"{name}.generator", f"{name}_like", f"{name}_like.generator")(standard)


def register_bernoulli(rule: Register, below: Rule, below_each: Rule) -> None:
    """Make rules of ``below(ctx, shape, p)``, true with a probability, and of one an element."""

    @functools.wraps(below_each)
    def of_elements(ctx: Operation[A], self: A) -> Result:
        return below_each(ctx, ctx.out[0].shape, self)

    @functools.wraps(below)
    def of_number(ctx: Operation[A], self: A | None, p: Any = 0.5) -> Result:
        return below(ctx, ctx.out[0].shape, p)

    @functools.wraps(below_each)
    def of_tensor(ctx: Operation[A], self: A, p: A) -> Result:
        return below_each(ctx, ctx.out[0].shape, p)

    rule("bernoulli")(of_elements)
    rule("bernoulli.p", "bernoulli_.float")(of_number)
    rule("bernoulli.Tensor", "bernoulli_.Tensor")(of_tensor)


def register_integers(rule: Register, integers: Rule) -> None:
    """Make rules of ``integers(ctx, shape, low, span)``, uniform in [low, low + span).

    Of size and dtype the promised result knows.
    """

    @functools.wraps(integers)
    def below(ctx: Operation[Any], high: Any, *_size: Any, **_options: Any) -> Result:
        return integers(ctx, ctx.out[0].shape, 0, high)

    @functools.wraps(integers)
    def between(ctx: Operation[Any], low: Any, high: Any, *_size: Any, **_options: Any) -> Result:
        end = _largest(ctx.out[0].dtype) + 1 if high is None else high
        return integers(ctx, ctx.out[0].shape, low, end - low)

    @functools.wraps(integers)
    def of_self(ctx: Operation[Any], self: A | None, *bounds: Any, **_options: Any) -> Result:
        if len(bounds) > 1:
            return between(ctx, *bounds)
        return below(ctx, *(bounds or (_largest(ctx.out[0].dtype) + 1,)))

    rule("random", "random_", "random.from", "random_.from", "random.to", "random_.to")(of_self)
    rule("randint_like", "randint_like.generator")(of_self)
    rule("randint_like.low_dtype", "randint_like.low_generator_dtype")(of_self)
    rule("randint", "randint.generator")(below)
    rule("randint.low", "randint.low_generator")(between)
