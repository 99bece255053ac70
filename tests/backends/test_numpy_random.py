"""NumPy's random rules: XLA's cases."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np

from fuse.backends.numpy import philox
from fuse.backends.numpy.rules.context import RuleContext, convert
from fuse.trace.evaluate import flatten
from fuse.trace.spec import TensorSpec
from tests.backends import test_rules_random
from tests.backends.numpy_harness import RULES, adopt, unreached

COUNT, SEED = test_rules_random.COUNT, test_rules_random.SEED


def numpy_words(seed: int, offset: int, count: int, function: Any = philox.words) -> np.ndarray:
    """``xla_words`` of the other file: any function there stands for its namesake here."""
    return getattr(philox, function.__name__)(seed, offset, count)


def draw(
    name: str,
    *args: Any,
    shape: tuple[int, ...] = (COUNT,),
    dtype: str = "float32",
    seed: int = SEED,
    offset: int = 0,
    results: int = 1,
    **kwargs: Any,
) -> Any:
    """Result of a random rule, the promised dtype applied as the interpreter does."""
    context = RuleContext((TensorSpec(dtype, shape),) * results, "float32", seed, offset)
    arrays = [np.asarray(a) if isinstance(a, np.generic) else a for a in args]
    made = flatten(RULES[name](context, *arrays, **kwargs))
    if results > 1:
        return tuple(made)
    assert made[0].shape == shape
    return convert(made[0], dtype)


adopt(
    test_rules_random,
    globals(),
    leave_out=(
        "test_parameters_may_be_arrays",
        "test_every_random_operator_has_a_rule",
    ),
    draw=draw,
    xla_words=numpy_words,
)


def test_every_rule_is_called() -> None:
    assert unreached("random", "rejection") == set()
