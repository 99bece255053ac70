"""What the files of this folder share: the CPU's errors, and programs on two devices."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from tests.device.helpers import DEVICE, run

CPU = torch.device("cpu")


def leaf(device: torch.device, *shape: int) -> torch.Tensor:
    """A tensor of random numbers that asks for a gradient."""
    return torch.randn(*shape).to(device).requires_grad_()


def error_of(program: Callable[[torch.device], object], device: torch.device) -> str:
    """The class and the text of what ``program`` raises, without the device's name."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  (its text is what is compared)
        program(device)
    text = re.sub(r"\b(tpu(:0)?|cpu)\b", "DEVICE", str(raised.value))
    return f"{raised.type.__name__}: {text}"


def assert_same_error(program: Callable[[torch.device], object], part: str) -> None:
    """Assert that ``program`` raises the CPU's error, in which ``part`` is found."""
    expected = error_of(program, CPU)
    assert part in expected
    assert error_of(program, DEVICE) == expected


def run_on_two_devices(code: str) -> None:
    """Run ``code``, which asserts for itself, in a process that has two devices."""
    run(f"import torch\n{code}", XLA_FLAGS="--xla_force_host_platform_device_count=2")
