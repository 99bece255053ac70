"""What a make of device says of one target: all that the shared machinery asks of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fuse.backends.estimates import Machine
from fuse.backends.xla.platform import Platform


class Described(ABC):
    """A target by name: what is published of it, and how its compiler is started.

    Attributes:
        text: the name as the user gave it.
        worker: the module whose ``create(text)`` is the compiler, in a process of its own.
        lowered_for: the platform's name where JAX lowers kernels for it.
        kind: what a device of it is called in a sentence.
    """

    text: str
    worker: ClassVar[str]
    lowered_for: ClassVar[str]
    kind: ClassVar[str]

    @property
    @abstractmethod
    def machine(self) -> Machine:
        """What is published of one device."""

    @abstractmethod
    def platform(self) -> Platform:
        """Where its programs would run."""

    @abstractmethod
    def compiler(self) -> str:
        """The package that the compiler is in, and its version.

        Raises ``ConfigError`` that says what to install where there is none.
        """

    @abstractmethod
    def topology(self) -> str:
        """What tells it from other targets in an estimate's key."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Variables that its worker needs beside the program's."""

    def is_unknown(self, why: str) -> bool:
        """Whether ``why``, what the compiler said, is that there is no such target."""
        return False
