"""The device with a target that is not real, set for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fuse.backends.xla.backend import XlaBackend
from fuse.device import lazy
from tests.targets.fakes import FakeTarget


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeTarget]]:
    """Makes the target that every name stands for."""

    def make(**how: object) -> FakeTarget:
        target = FakeTarget(**how)  # type: ignore[arg-type]
        monkeypatch.setattr(XlaBackend, "target", lambda self, name: target)
        return target

    yield make
    if lazy.is_initialised() and lazy.engine().targeted is not None:
        lazy.set_target(None)
