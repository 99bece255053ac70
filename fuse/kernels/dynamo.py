"""What ``torch.compile`` is told about Python that it cannot trace."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Made = TypeVar("Made")


def outside(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Have the function, and what it calls, run as it is, between two compiled graphs.

    What ``torch.compiler.disable`` does, without loading the compiler, which takes a second.
    """
    assert isinstance(function, FunctionType)
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
        "JAX takes trees of tensors apart; call the kernel with single tensors, or break here"
    )
    return function
