"""Operators of sparse tensors on the host, said and counted as every other one that runs there."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fuse.device.started import device
from fuse.trace.functional import is_written

WHY: Final = "the device has no program of it for sparse tensors"
CPU: Final = torch.device("cpu")


def is_ours(x: object) -> TypeGuard[Tensor]:
    """Whether ``x`` is a tensor of the device, of whatever layout."""
    return isinstance(x, Tensor) and x.device.type == "tpu"


class _Moved:
    """A call's arguments on the host: each tensor once."""

    def __init__(self) -> None:
        self.device: torch.device | None = None
        self._hosts: dict[int, Tensor] = {}

    def __call__(self, x: Any) -> Any:
        if isinstance(x, torch.device) and x.type == "tpu":
            self.device = x
            return CPU
        if not is_ours(x):
            return x
        self.device = x.device
        if id(x) not in self._hosts:
            self._hosts[id(x)] = x.cpu()
        return self._hosts[id(x)]


def on_host(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """What PyTorch's CPU makes of the call; what it writes is written on the device.

    Warns once an operator, or raises, as ``FUSE_HOST_FALLBACK`` says. PyTorch's own errors are the
    caller's.
    """
    moved = _Moved()
    found = op(*tree_map(moved, args), **tree_map(moved, kwargs))
    schema = op._schema
    device().engine.host_fallback(schema.name.removeprefix("aten::"), WHY)
    originals: dict[int, Tensor] = {}
    for at, argument in enumerate(schema.arguments):
        given = args[at] if at < len(args) else kwargs.get(argument.name)
        if is_written(argument) and is_ours(given):
            host = moved(given)
            originals[id(host)] = given
            _write(given, host)

    def returned(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return originals[id(x)] if id(x) in originals else x.to(moved.device)

    return tree_map(returned, found)


def _write(given: Tensor, host: Tensor) -> None:
    """A tensor of the device takes what a call has made of its counterpart on the host."""
    if given.layout == torch.sparse_coo:
        torch.ops.aten.copy_sparse_to_sparse_(given, host.to(given.device))
        return
    if given.layout != torch.strided:
        torch.ops.aten.resize_as_sparse_(given, host.to(given.device))
    elif given.shape != host.shape:
        given.resize_(host.shape)
    given.copy_(host)
