"""``torch.tpu.compiler``: options of the compiler for a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from fuse.device import lazy


@contextlib.contextmanager
def custom_compiler_options(options: Mapping[str, str | bool | int | float]) -> Iterator[None]:
    """Compile what the block runs with these options of XLA beside the backend's own.

    Inner blocks add to outer ones and win. Programs that were compiled with other options are not
    used inside, nor these outside. What is recorded before the block and pending is compiled
    without them. An option that XLA lacks is an ``ExecutionError`` where something is compiled.

    Raises ``UnsupportedError`` on a backend that compiles nothing.
    """
    engine = lazy.engine()
    before = dict(engine.backend.options)
    _set(before | dict(options))
    try:
        yield
    finally:
        _set(before)


def _set(options: Mapping[str, str | bool | int | float]) -> None:
    lazy.core().forget()  # cuts, and drops the plans, whose programs have other options
    lazy.engine().compile_with(options)
