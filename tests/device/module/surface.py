"""Calls every method of what PyTorch gives of a device once with each of many arguments.

    python -m tests.device.module.surface before|after SUBJECT

Says ``CALL`` and its name before each call, and ``WRONG`` and why after those that are: their
result is not the CPU's, or they raise where the CPU does not and ``REFUSED`` has no such text, or
what they raise says nothing. With ``before``, each call is the device's first use in a process of
its own.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

SECONDS = 60
ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    (),
    (0,),
    (3,),
    (-1,),
    (1 << 62,),
    (2.5,),
    ("x",),
    (None,),
    (b"",),
    ("cpu",),
    ("tpu",),
    (torch.float64,),
    (torch.int16,),
    (slice(1, 3),),
    (slice(0, 4),),
    (slice(None),),
    (0, 7),
    (slice(0, 2), 7),
    (4, 8),
)


class FirstUses:
    """What a program may begin with; each is a use of the device, or asks for one."""

    def __init__(self, device: str) -> None:
        self.device = device

    def default_device(self) -> Any:
        torch.set_default_device(self.device)
        try:
            torch.tpu.init()
            return [
                torch.ones(2),
                torch.tensor([1, 2]),
                torch.nn.Linear(2, 2)(torch.zeros(2)).shape,
            ]
        finally:
            torch.set_default_device("cpu")

    def device_context(self) -> Any:
        with torch.device(self.device):
            torch.tpu.init()
            return torch.arange(3)

    def inference(self) -> Any:
        with torch.inference_mode():
            torch.ones(2, device=self.device)
        weight = torch.ones(2, device=self.device, requires_grad=True)
        (weight * 2).sum().backward()
        return weight.grad

    def generator(self) -> Any:
        made = torch.Generator(self.device).manual_seed(3)
        return made.initial_seed(), isinstance(made, torch.Generator), str(made.device)

    def untyped_storage(self) -> Any:
        return torch.UntypedStorage([1, 2, 3], device=self.device)

    def typed_storage(self) -> Any:
        return torch.TypedStorage([1, 2, 3], device=self.device, dtype=torch.int16)

    def stream(self) -> Any:
        return torch.Stream(self.device).query()

    def event(self) -> Any:
        return torch.Event(self.device).query()

    def pinned(self) -> Any:
        """Pinned at once, and once the device has started; its views as well."""
        host = torch.arange(4.0).pin_memory()
        before = [host.is_pinned(), host[1:].is_pinned(), host.pin_memory() is host]
        moved = host.to("tpu", non_blocking=True)
        after = [host.is_pinned(), host[1:].is_pinned(), host.pin_memory() is host]
        return before, after, torch.ones(2).is_pinned(), moved.cpu(), host

    def pinned_storage(self) -> Any:
        host = torch.arange(4.0).untyped_storage().pin_memory()
        before = host.is_pinned()
        torch.tpu.init()
        return before, host.is_pinned(), host


SUBJECTS: dict[str, Callable[[str], Any]] = {
    "untyped": lambda device: torch.arange(4.0).to(device).untyped_storage(),
    "untyped, empty": lambda device: torch.empty(0, device=device).untyped_storage(),
    "typed": lambda device: torch.arange(4.0).to(device).storage(),
    "typed, integers": lambda device: torch.arange(4, device=device)[1:].storage(),
    "tensor": lambda device: torch.arange(4.0).to(device),
    "tensor, a view": lambda device: torch.arange(6.0).to(device).view(2, 3).t()[1:],
    "generator": lambda device: torch.Generator(device),
    "event": lambda device: torch.Event(device),
    "stream": lambda device: torch.Stream(device),
    "first uses": FirstUses,
    "host tensor": lambda device: torch.arange(4.0),
    "accelerator": lambda device: torch.accelerator,
    "module": lambda device: torch.tpu,
}
WITHOUT_CPU = frozenset({"generator", "event", "stream", "accelerator", "module"})
BEFORE = ("first uses", "host tensor", "accelerator", "module")
"""Subjects that are there without the device's first use."""
"""What the CPU has none of, or, of generators, another one: nothing to compare with."""

FIRST: tuple[tuple[Any, ...], ...] = ((), (0,), (None,))
"""The arguments of first uses, each of which takes a process."""

TENSOR = [
    "__array__",
    "__copy__",
    "__dlpack__",
    "__dlpack_device__",
    "__reduce_ex__",
    "_lazy_clone",
    "_typed_storage",
    "cpu",
    "cuda",
    "data_ptr",
    "element_size",
    "get_device",
    "is_pinned",
    "is_shared",
    "item",
    "nbytes",
    "new",
    "numpy",
    "pin_memory",
    "record_stream",
    "resize_",
    "set_",
    "share_memory_",
    "storage",
    "storage_offset",
    "storage_type",
    "to",
    "tolist",
    "tpu",
    "type",
    "untyped_storage",
]
"""Methods of tensors that are about devices and memory."""

RAW = frozenset(
    [
        "_set_cdata",
        "_new_with_weak_ptr",
        "_free_weak_ref",
        "_expired",
        "_fix_weakref",
        "_release_ipc_counter",
        "_release_ipc_counter_cuda",
        "_new_shared_cuda",
        "_cdata",
        "_set_from_file",
        "_write_file",
    ]
)
"""Private methods that on every device take any number for an address, or arguments uncounted."""

DIFFERENT = frozenset(
    [
        "data_ptr",
        "_data_ptr",
        "device",
        "get_device",
        "is_tpu",
        "is_shared",
        "_is_shared",
        "_shared_incref",
        "_shared_decref",
        "_weak_ref",
        "type",
        "storage_type",
        "__dlpack__",
        "__dlpack_device__",
        "__reduce_ex__",
        "__sizeof__",
        "_get_legacy_storage_class",
        "is_pinned",
        "__reduce__",
        "__getstate__",
        "__hash__",
    ]
)
"""What is rightly another on the device: addresses, devices' names, what the file system shares."""

NEW = frozenset(["new", "resize_", "_resize_"])
"""What returns memory that nothing has been written to."""

REFUSED = {
    "__getitem__": "a slice of a storage shares its memory",
    "pin_memory": "only.* can be pinned",
    "_share_fd_cpu_": "only available on CPU",
    "_share_filename_cpu_": "only available on CPU",
    "numpy": "can't convert tpu",
    "__array__": "can't convert tpu",
}
"""What the CPU does and the device does not, and the text that says so."""

VAGUE = re.compile(r"INTERNAL ASSERT|Please register|nullptr|not a valid pointer")


def calls(
    subject: str, all_arguments: tuple[tuple[Any, ...], ...]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Name and arguments of each call of a subject's."""
    sample = SUBJECTS[subject]("cpu" if subject not in WITHOUT_CPU else "tpu")
    names = TENSOR if "tensor" in subject else [n for n in dir(sample) if is_called(n)]
    kind = sample if isinstance(sample, ModuleType) else type(sample)  # a property may raise
    for name, arguments in itertools.product(names, all_arguments):
        if callable(getattr(kind, name, None)) or arguments == ():
            yield name, arguments


def is_called(name: str) -> bool:
    """Whether a name of a subject is one that programs use, or acts on memory."""
    if name.startswith("__"):
        return name in ("__getitem__", "__setitem__", "__iter__", "__copy__", "__repr__", "__len__")
    return name not in RAW


def outcome(subject: str, device: str, name: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """What a call returned, in plain values, and the subject afterwards; or what it raised."""
    made = SUBJECTS[subject](device)
    try:
        found = getattr(made, name)
        found = plain(found(*arguments)) if callable(found) else plain(found)
    except Exception as error:  # noqa: BLE001  (whichever it is, it is what is compared)
        found = error
        return found, None  # resize_(-1) of the CPU leaves a tensor that ends the process
    return found, None if subject in WITHOUT_CPU else plain(made)


def plain(value: Any) -> Any:
    """A value that can be compared with that of another device."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), value.tolist() if value.numel() else []]
    if torch.is_storage(value):
        untyped = value.cpu() if isinstance(value, torch.UntypedStorage) else value.cpu().untyped()
        return [str(getattr(value, "dtype", "")), untyped.nbytes(), bytes(untyped.tolist())]
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (bool, int, float, bytes, type(None))):
        return value
    if isinstance(value, str):
        value = re.sub(r" at 0x[0-9a-f]+", "", value)  # of an object without a text of its own
        return re.sub(r"tpu(:0)?", "cpu", value.replace("torch.tpu.", "torch."))
    if isinstance(value, Iterator):
        return [plain(one) for one in value]
    return type(value).__name__


def wrong(subject: str, name: str, arguments: tuple[Any, ...]) -> str:
    """What is wrong with a call, or an empty text."""
    found, after = outcome(subject, "tpu", name, arguments)
    expected, expected_after = None, None
    if subject not in WITHOUT_CPU:
        expected, expected_after = outcome(subject, "cpu", name, arguments)
        if isinstance(expected, Exception) and type(found) is type(expected):
            return ""
    raised = isinstance(found, Exception)
    if raised and (isinstance(found, (RecursionError, SystemError)) or not str(found)):
        return f"raises {found!r}"
    if raised and VAGUE.search(str(found)):
        return f"says nothing of the program: {found}"
    if subject in WITHOUT_CPU or isinstance(expected, Exception):
        return ""
    if raised:
        text = REFUSED.get(name)
        return "" if text and re.search(text, str(found)) else f"{found!r}, and not {expected}"
    if name in DIFFERENT or name in NEW and shapes(found) == shapes(expected):
        return ""
    if (found, after) != (expected, expected_after):
        return f"{found} {after}, and not {expected} {expected_after}"
    return ""


def shapes(found: Any) -> Any:
    """The part of a plain value that is not its elements."""
    return found[:2] if isinstance(found, list) else found


def alone(check: Callable[[], str]) -> str:
    """What ``check`` says in a forked process, or how that one ended."""
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.write(theirs, check().encode()[:4000])
        os._exit(0)
    os.close(theirs)
    with os.fdopen(mine, "rb") as said:
        text = said.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text if code == 0 else f"the process ended with {code}"


def main(when: str, subject: str) -> None:
    """Make the calls of a subject's, before or after the device's first use."""
    warnings.simplefilter("ignore")
    if when == "after":
        torch.ones(1, device="tpu")
    for name, arguments in calls(subject, ARGUMENTS if when == "after" else FIRST):
        print(f"CALL {name}{arguments}", flush=True)
        if when == "after":
            text = wrong(subject, name, arguments)
        else:
            text = alone(lambda: wrong(subject, name, arguments))  # noqa: B023
        if text:
            print(f"WRONG {name}{arguments}: {text}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
