"""Which results are asked for as a plan is handed on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np

from fuse.backends.xla.backend import XlaBackend
from fuse.backends.xla.packed_arrays import rows_of
from fuse.engine.host_reads import LARGEST, HostReads


def plan(sizes: dict[int, int], chunks: list[list[int]]) -> Any:
    """A runnable of live values with these sizes, whose chunks make these values."""
    layouts = {value: SimpleNamespace(nbytes=nbytes) for value, nbytes in sizes.items()}
    made = SimpleNamespace(
        live=tuple(sizes),
        trace=SimpleNamespace(layouts=lambda: layouts),
        chunks=[SimpleNamespace(outputs=tuple(values)) for values in chunks],
    )
    stages = [SimpleNamespace(read=()) for _ in chunks]
    return SimpleNamespace(plan=made, stages=stages, small=None)


def asked(runnable: Any) -> list[tuple[int, ...]]:
    return [stage.read for stage in runnable.stages]


def test_a_result_that_was_read_is_its_stage_s() -> None:
    runnable, reads = plan({3: 4, 5: 4, 8: 4}, [[3], [7, 5, 8]]), HostReads()
    results = [object() for _ in range(3)]
    reads.ran(runnable, results)
    assert asked(runnable) == [(), ()]
    reads.read(results[1])
    assert asked(runnable) == [(), (1,)]
    for array in (results[2], results[1], results[0]):
        reads.read(array)
    assert asked(runnable) == [(0,), (1, 2)]


def test_large_ones_leaves_and_those_of_others_are_not_asked_for() -> None:
    runnable, reads = plan({1: 4, 5: LARGEST + 1, 6: LARGEST}, [[5, 6]]), HostReads()
    results = [object() for _ in range(3)]
    reads.read(results[2])  # of no plan yet
    reads.ran(runnable, results)
    for array in (object(), results[0], results[1]):
        reads.read(array)
    assert asked(runnable) == [()]
    reads.ran(plan({9: 4}, [[9]]), [object()])
    reads.read(results[2])  # the last plan is another one
    assert asked(runnable) == [()]


def test_xla_s_arrays_and_rows_are_read_as_ever_after_they_were_asked_for() -> None:
    backend = XlaBackend()
    array, (_, row) = jnp.arange(3.0), rows_of(jnp.ones((2, 3)), 2)
    backend.ask([array, row])
    np.testing.assert_array_equal(backend.get(array), np.arange(3.0))
    np.testing.assert_array_equal(backend.get(row), np.ones(3))
