"""What PyTorch asks of its accelerator in programs that never use it, answered without a start.

A renamed device is PyTorch's accelerator from ``import torch`` on. PyTorch's own functions for it
start the device, or need what the native core registers; programs for the CPU call them too: a
data loader that pins memory, ``barrier``, a benchmark's timer. Until the device starts, these
functions stand in for them; then PyTorch's own are put back.
"""

from __future__ import annotations

import operator
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

_PIN, _IS_PINNED = torch.Tensor.pin_memory, torch.Tensor.is_pinned
_pinned: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
"""What the program has pinned so far: pageable memory, which the device pins once it starts."""


class _Guard(torch._C._acc.DeviceGuard):
    """Stands in for the native device guard until the core is loaded: streams can be made."""

    def type_(self) -> Any:
        # Autograd counts devices once, at the process's first backward pass: it would start
        # threads for this one, and a process with such threads must not fork.
        kinds = torch._C._autograd.DeviceType
        return kinds.CPU if asked_by("torch.autograd") else kinds.PrivateUse1


_guard = _Guard()


def asked_by(*modules: str) -> bool:
    """Whether the caller's caller is in one of these modules, or in a package below one."""
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _get_accelerator(check: bool = False) -> torch.device:
    # Collectives go by it: as long as the device is unused, they are the CPU's.
    return torch.device("cpu" if asked_by("torch.distributed") else "tpu")


def _set_device_index(index: int) -> None:
    if index > 0:
        sys.modules["torch.tpu"].set_device(index)


def _exchange_device(index: int) -> int:
    _set_device_index(index)
    return 0


def _pin_memory(tensor: torch.Tensor, device: torch.device | str | None = None) -> torch.Tensor:
    """A copy, which is noted; the tensor itself where it is pinned already."""
    if tensor.device.type != "cpu" or not _is_ours(device):
        return _PIN(tensor, device)
    if _is_pinned(tensor, device):
        return tensor
    copy = tensor.clone()
    _pinned.add(copy.untyped_storage())
    return copy


def _is_pinned(tensor: torch.Tensor, device: torch.device | str | None = None) -> bool:
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not _is_ours(device):
        return _IS_PINNED(tensor, device)
    return tensor.untyped_storage() in _pinned


def _is_ours(device: Any) -> bool:
    return device is None or torch.device(device).type == "tpu"


def _starting(kind: type[Any], default: str) -> type[Any]:
    """What stands in for one of PyTorch's classes: an instance on the device starts the device.

    ``default`` is the device where none is said. Every instance of ``kind`` is one of it as well.
    """

    class Asked(type(kind)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return (
                isinstance(instance, kind) if cls is made else super().__instancecheck__(instance)
            )

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind) if cls is made else super().__subclasscheck__(other)

    def new(cls: type[Any], *args: Any, **options: Any) -> Any:
        device = options.get("device", args[0] if args else None)
        if torch.device(default if device is None else device).type == "tpu":
            sys.modules["torch.tpu"].init()
        return kind.__new__(kind if cls is made else cls, *args, **options)

    made = Asked(kind.__name__, (kind,), {"__new__": new, "__module__": kind.__module__})
    return made


def _new_graph(kind: type[Any], *args: Any, **options: Any) -> Any:
    """A graph starts the device, whose core PyTorch makes it by; ``__new__`` is its own by then."""
    sys.modules["torch.tpu"].init()
    return kind.__new__(kind, *args, **options)


_streams: defaultdict[object, torch.Stream] = defaultdict(torch.Stream)
_STAND_INS: dict[str, Callable[..., object]] = {
    "_get_accelerator": _get_accelerator,
    "_accelerator_getDeviceIndex": lambda: 0,
    "_accelerator_setDeviceIndex": _set_device_index,
    "_accelerator_exchangeDevice": _exchange_device,
    "_accelerator_maybeExchangeDevice": _exchange_device,
    # No Python frame, which torch.compile, asking for it itself, would compile.
    "_accelerator_getStream": _streams.__getitem__,
    "_accelerator_setStream": lambda stream: None,
    "_accelerator_synchronizeDevice": lambda index: None,
    "_accelerator_isAllocatorInitialized": lambda: False,
    "_accelerator_emptyHostCache": lambda: None,
    "_dynamo.utils.get_current_stream": _streams.__getitem__,  # every compiled call's, from 2.15
}
"""By the name in ``torch._C`` of what they stand in for; versions of PyTorch lack some."""
_CLASSES: dict[type[Any], str] = {
    torch._C.Generator: "cpu",
    torch.Stream: "tpu",
    torch.Event: "tpu",
}
"""Whose instances start the device, and where they are by default."""
_replaced: list[tuple[Any, str, Any]] = []
"""Of each that is replaced: the module, its name there, and PyTorch's own."""


def hide_from_autograd() -> None:
    """Have autograd count devices now, if it has not: not this one, see the guard.

    Passes run in the thread that asks for them, and a forked child may run its own on the CPU.
    """
    # A thread of its own is outside of every mode of the program's.
    one = torch.ones(1, requires_grad=True, device="cpu")
    thread = threading.Thread(target=one.backward)
    thread.start()
    thread.join()


def stand_in() -> None:
    """Answer for the device from here on."""
    torch._C._acc.register_python_privateuseone_device_guard(_guard)
    for path, answer in _STAND_INS.items():
        inner, _, name = path.rpartition(".")
        module = operator.attrgetter(inner)(torch._C) if inner else torch._C
        if hasattr(module, name):
            _replaced.append((module, name, getattr(module, name)))
            setattr(module, name, answer)
    graph = getattr(torch.accelerator, "Graph", None)  # from PyTorch 2.13 on
    if graph is not None:
        _replaced.append((graph, "__new__", graph.__new__))
        graph.__new__ = _new_graph
    torch.Tensor.pin_memory = _pin_memory  # type: ignore[assignment,method-assign]
    torch.Tensor.is_pinned = _is_pinned  # type: ignore[assignment,method-assign]
    for kind, default in _CLASSES.items():
        setattr(torch, kind.__name__, _starting(kind, default))


def step_back(pin: Callable[[torch.Tensor], bool]) -> None:
    """The device has started: PyTorch's own functions are back, and ``pin`` pins a CPU tensor's
    memory where it lies."""
    for module, name, function in _replaced:
        standing = getattr(module, name)
        setattr(module, name, function)
        for importer in ("torch._dynamo.utils", "torch._dynamo.guards"):  # they keep it by name
            keeper = sys.modules.get(importer)
            if getattr(keeper, name, None) == standing:
                setattr(keeper, name, function)
    if _replaced:
        del torch.Tensor.pin_memory, torch.Tensor.is_pinned
        for kind in _CLASSES:
            setattr(torch, kind.__name__, kind)
    _replaced.clear()
    for storage in list(_pinned):
        pin(torch.empty(0, dtype=torch.uint8).set_(storage))
    _pinned.clear()
