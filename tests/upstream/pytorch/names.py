"""What a test is called on every device: the name it has on the CPU."""

from __future__ import annotations

import re
import unittest
from collections.abc import Iterator
from types import ModuleType

CPU, DEVICE = "CPU", "PRIVATEUSE1"
"""PyTorch's bases of the classes that it makes of a generic one, and how these end at first: once a
class has been set up for the device they end with its name."""


def tests_of(module: ModuleType, device: str, gpu: str = "gpu") -> dict[str, unittest.TestCase]:
    """The module's tests for ``device``, ``"cpu"`` or another, by their names on the CPU.

    A class that is not generic is for every device: it runs with that one as default device. What
    stands for a GPU there is called ``gpu``.
    """
    found = {}
    for test in _every_test(module):
        class_name = type(test).__name__
        base = _generic_base(test)
        if base is None:
            found[f"{class_name}.{_of_gpu(_method(test), gpu)}"] = test
        elif base == (CPU if device == "cpu" else DEVICE):
            generic = class_name.removesuffix(base).removesuffix(device.upper())
            before, _, after = _method(test).rpartition(f"_{device}")
            found[f"{generic}.{before}_cpu{after}"] = test
    return found


def _every_test(module: ModuleType) -> Iterator[unittest.TestCase]:
    """Not by the module's own ``load_tests``, which PyTorch's files have for their shards."""
    for one in vars(module).values():
        if isinstance(one, type) and issubclass(one, unittest.TestCase):
            yield from unittest.defaultTestLoader.loadTestsFromTestCase(one)


def _method(test: unittest.TestCase) -> str:
    return test.id().rpartition(".")[2]


def _of_gpu(method: str, gpu: str) -> str:
    """A method's name that ends with a GPU's, or has it among its parameters."""
    return re.sub(rf"_{gpu}(?=_|$)", "_gpu", method)


def is_generic(test: unittest.TestCase) -> bool:
    """Whether the test is told its device, and needs no default one."""
    return _generic_base(test) is not None


def _generic_base(test: unittest.TestCase) -> str | None:
    """Which of PyTorch's bases made the test's class; ``None`` if it is not generic."""
    for one in type(test).__mro__:
        name = one.__name__
        if name.endswith("TestBase") and one.__module__.endswith("common_device_type"):
            return name.removesuffix("TestBase").upper()
    return None
