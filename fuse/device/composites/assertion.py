"""Assertions on the device: checked where the program reads, as a GPU's are, not at the call."""

from __future__ import annotations

import threading
from typing import Final

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel
from fuse.device.started import device
from fuse.errors import describe
from fuse.trace.source import user_line

HOLDS: Final = 2**31 - 1
"""The state of assertions none of which has failed; else it is the number of the first."""
DEFAULT: Final = "Expected Tensor with single nonzero value, but got zero"


class Assertions:
    """What is asserted, by number, and of each thread the least that has failed since a check.

    That is one number in the device's memory: a check reads one, however many were asserted.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._states: dict[
            tuple[int, int], Tensor
        ] = {}  # by device and thread: each has its stream

    def number(self, message: str, line: str) -> int:
        """The number of an assertion of the program's."""
        return self._numbers.setdefault((message, line), len(self._numbers))

    def add(self, state: Tensor) -> None:
        """Note a state, an integer without dimensions, for the next check.

        Raises at once where the host has it, which nobody would have to wait for.
        """
        here = device().core.value_here(state)
        if here is not None:
            self._raise_if_failed(int(here.item()))
            return
        key = state.get_device(), threading.get_ident()
        before = self._states.get(key)
        self._states[key] = state if before is None else before.minimum(state)
        device().engine.data_checks.asserted = self.check

    def check(self) -> None:
        """Raise ``RuntimeError`` for the first that has failed. Waits for the device."""
        device().engine.data_checks.asserted = None  # at once: what follows reads
        states, self._states = self._states, {}  # another thread may check, too
        numbers = [int(state.item()) for state in states.values()]
        self._raise_if_failed(min(numbers, default=HOLDS))

    def _raise_if_failed(self, number: int) -> None:
        if number == HOLDS:
            return
        message, line = list(self._numbers)[number]
        raise RuntimeError(
            describe(
                message,
                operator="aten::_assert_async",
                source=line,
                hint="it is checked where results are read; "
                'fuse.set_mode("debug") raises at the call',
            )
        )


ASSERTIONS = Assertions()


def state_of(condition: Tensor, number: int) -> Tensor:
    """``number`` where ``condition``, of one element, is zero, and else ``HOLDS``."""
    return torch.where(condition.reshape(()).ne(0), HOLDS, number)


@kernel("_assert_async", "_assert_async.msg")
def _assert_async(self: Tensor, assert_msg: str = DEFAULT) -> None:
    if self.numel() != 1:
        values = "no values" if self.numel() == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {values} is ambiguous")
    if device().engine.backend.name == "fake":
        return  # there are no values
    here = device().core.value_here(self)
    if here is not None or device().engine.mode == "debug":
        if not (self if here is None else here).item():
            raise RuntimeError(assert_msg)
        return
    device().core.refuse_in_graph("an assertion, which is checked on the host")
    ASSERTIONS.add(state_of(self, ASSERTIONS.number(assert_msg, user_line())))
