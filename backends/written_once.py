"""Programs that are written once for JAX and NumPy, whose functions of these names agree."""

from __future__ import annotations

import hashlib
import importlib
from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from fuse.backends.functions import PROGRAMS, Named, Program
from fuse.trace.functional import MARK


class WrittenOnce(Program):
    """The base of frozen dataclasses whose fields are their code."""

    storable = True

    @property
    def code(self) -> str:  # type: ignore[override]  # a property, for the fields are frozen
        """A digest of what it is."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]

    @abstractmethod
    def make(self, xp: ModuleType, arrays: Sequence[Any]) -> Any:
        """The result, by the functions of ``xp``."""

    def shipped(self, platform: str) -> Program:
        """Itself."""
        return self

    def emit(self, platform: Named, arrays: Sequence[Any]) -> list[Any]:
        """The result, on tracers."""
        # Loaded late: NumPy's backend needs nothing of JAX.
        return [self.make(importlib.import_module("jax.numpy"), arrays)]

    def on_host(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The result, by NumPy."""
        return [self.make(np, arrays)]


def target_of(operator: str, program: WrittenOnce) -> str:
    """The target of a node of ``operator`` that runs the program; it is known from now on."""
    code = program.code
    PROGRAMS.setdefault(code, program)
    return f"{operator}{MARK}{code}"


def is_written_once(target: str) -> bool:
    """Whether a target names such a program, which means the same in every process."""
    return isinstance(PROGRAMS.get(target.partition(MARK)[2]), WrittenOnce)


def given_sizes(sizes: Sequence[int | None], given: Sequence[Any]) -> list[Any]:
    """The sizes of parts, those that are ``None`` among what is ``given``."""
    rest = iter(given)
    return [next(rest).astype("int32") if size is None else size for size in sizes]
