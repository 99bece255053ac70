"""A compiler that never compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from fuse.device import lazy
from fuse.engine.compiler import Compiler


class Stuck:
    """A pool that takes jobs and never runs them."""

    def submit(self, job: Callable[[], Any], weight: float = 0.0) -> Future[Any]:
        return Future()

    def pending(self) -> int:
        return 0


@contextmanager
def stuck_compiler() -> Iterator[Compiler]:
    """In the block nothing is in memory and nothing ever compiles."""
    engine, core = lazy.engine(), lazy.core()
    compiler = Compiler(engine.executables, background=True)
    compiler._pool = Stuck()  # type: ignore[assignment]
    core.forget()
    engine.executables.cache.clear_memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.planning, "compiler", compiler)
        yield compiler
    core.forget()  # later tests compile again
