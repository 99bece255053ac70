"""Tests of PyTorch's that pass on the CPU and not on the device, each with its reason.

A pattern is of shell's kind, for ``file:Class.test`` with the name that the test has on the CPU.
"""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[str, tuple[str, ...]]] = {}
"""Patterns by reason. One that matches a test which passes in all lanes is no longer needed."""
