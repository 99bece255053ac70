"""Tensors of the device stay in their process: whoever sends one to another is told so.

``multiprocessing`` pickles with reducers of its own. PyTorch's share the memory behind a tensor,
which the device does not have.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing.reductions import reduce_storage, reduce_tensor

from fuse.errors import FuseError, describe

TEXT = describe(
    "a tensor on the tpu device cannot be sent to another process",
    hint="send tensor.cpu(), and move it to the device there",
)


def register() -> None:
    """Have ``multiprocessing`` refuse the device's tensors and storages from now on."""
    ForkingPickler.register(torch.Tensor, _unless_ours(reduce_tensor))
    ForkingPickler.register(torch.nn.Parameter, _unless_ours(reduce_tensor))
    ForkingPickler.register(torch.UntypedStorage, _unless_ours(reduce_storage))


def _unless_ours(reduce: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda sent: _refuse() if sent.device.type == "tpu" else reduce(sent)


def _refuse() -> tuple[Any, ...]:
    if not _is_dropped():
        raise FuseError(TEXT)
    print(f"FuseError: {TEXT}", file=sys.stderr, flush=True)
    return _raise, (TEXT,)


def _is_dropped() -> bool:
    """Whether an error here is printed and its object dropped, for which the receiver waits on.

    So does the thread of a queue, unless its class has another way to report errors.
    """
    arguments = getattr(threading.current_thread(), "_args", ())
    dropping = Queue._on_queue_feeder_error  # type: ignore[attr-defined]
    return any(argument is dropping for argument in arguments)


def _raise(text: str) -> NoReturn:
    """What the receiver unpickles instead."""
    raise FuseError(text)
