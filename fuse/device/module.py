"""``torch.tpu``: what PyTorch and its users expect of a device module.

Names, arguments and meanings follow ``torch.cuda`` and ``torch.accelerator``.
"""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import sys
import threading
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch.storage import _dtype_to_storage_type_map

from fuse.device import lazy, memory as memory, unused
from fuse.device.memory import (
    empty_cache as empty_cache,
    host_memory_stats as host_memory_stats,
    host_memory_stats_as_nested_dict as host_memory_stats_as_nested_dict,
    max_memory_allocated as max_memory_allocated,
    max_memory_reserved as max_memory_reserved,
    mem_get_info as mem_get_info,
    memory_allocated as memory_allocated,
    memory_reserved as memory_reserved,
    memory_snapshot as memory_snapshot,
    memory_stats as memory_stats,
    memory_stats_as_nested_dict as memory_stats_as_nested_dict,
    memory_summary as memory_summary,
    reset_accumulated_host_memory_stats as reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    reset_peak_host_memory_stats as reset_peak_host_memory_stats,
    reset_peak_memory_stats as reset_peak_memory_stats,
)

OutOfMemoryError = torch.OutOfMemoryError
"""What the device raises where a value does not fit, under CUDA's other name."""
Which = torch.device | str | int | None
"""How a device is said; ``None`` is the current one."""
_lock = threading.RLock()
__path__ = [str(pathlib.Path(__file__).parents[1] / "torch_tpu")]
_SUBMODULES = frozenset({"compiler", "ops", "optimizers", "pallas", "profiler"})


@lazy.outside_dynamo
def _lazy_init() -> None:
    """Build or load the native core, and start the backend; the first call only."""
    with _lock:
        lazy.initialise()


def init() -> None:
    """Start the device now instead of at its first use.

    It builds or loads the native core, and starts the backend. Once started, it does nothing.

    Raises:
        BuildError: the native core can be neither built nor loaded.
        VersionError: PyTorch or JAX is too old.
    """
    _lazy_init()


def is_initialized() -> bool:
    """Whether the device has been started; starts nothing."""
    return lazy.is_initialised()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one whose device had been started."""
    return lazy.in_bad_fork()


class _TpuModule(ModuleType):
    """``torch.tpu`` with an attribute that can be set: the eager mode, in TorchTPU's names."""

    @property
    def eager_mode(self) -> Any:
        """The current mode, an ``EagerMode``."""
        return self.get_eager_mode()

    @eager_mode.setter
    def eager_mode(self, mode: Any) -> None:
        self.choose_eager_mode(mode)


sys.modules[__name__].__class__ = _TpuModule


def __getattr__(name: str) -> Any:
    """``_initialized``, by which PyTorch asks for random state to keep; and what is loaded late.

    That is the folder ``fuse/torch_tpu``, which stands above this one.
    """
    if name == "_initialized":
        return lazy.is_initialised()
    if name in _SUBMODULES:
        return importlib.import_module(f"torch.tpu.{name}")
    if name in _dtype_to_storage_type_map().values():
        return importlib.import_module("fuse.device.storages").typed(name)
    if name.startswith("_"):  # PyTorch asks for many
        raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")
    return getattr(importlib.import_module("torch.tpu.names"), name)


def is_available() -> bool:
    """Whether there is a device to use: always, for XLA on the CPU needs nothing else."""
    return True


def device_count() -> int:
    """How many devices JAX finds; starts the device.

    PyTorch's own questions, which come from programs for the CPU too, start nothing: 1 then.
    """
    if not lazy.is_initialised() and unused.asked_by("torch.random", "torch.accelerator"):
        return 1
    _lazy_init()
    return lazy.engine().backend.device_count()


def _index(which: Which) -> int:
    if which is None:
        return current_device()
    if isinstance(which, int):
        return which
    device = torch.device(which)
    return current_device() if device.index is None else device.index


def current_device() -> int:
    """The calling thread's current device.

    Returns:
        Its index; 0 before the device has been started, and starts nothing.
    """
    if not lazy.is_initialised():
        return 0
    return lazy.core().get_device()


def set_device(device: Which) -> None:
    """Make a device the calling thread's current one; starts the device.

    Args:
        device: index, string or ``torch.device``. ``None``, and one without an index, is the
            current one.

    Raises:
        RuntimeError: there is no device of this index.
    """
    _lazy_init()
    lazy.core().set_device(_index(device))


class device:  # noqa: N801  (the name PyTorch looks for)
    """Context manager: a current device for the block, the calling thread's."""

    def __init__(self, which: Which) -> None:
        """What the block's device is; entering it starts the device.

        Args:
            which: index, string or ``torch.device``; ``None`` is the current one, -1 no change.

        Raises:
            RuntimeError: on entering, where there is no device of this index.
        """
        self.idx = _index(which)
        self.prev_idx = -1

    def __enter__(self) -> None:
        """Switch."""
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *_: object) -> None:
        """Switch back."""
        if self.prev_idx >= 0:
            set_device(self.prev_idx)


def _exchange_device(index: int) -> int:
    before = current_device()
    if index >= 0:
        set_device(index)
    return before


_maybe_exchange_device = _exchange_device


def get_device_name(which: Which = None) -> str:
    """The platform's own name of a device, for example ``cpu`` or ``NVIDIA H200``; starts it.

    Args:
        which: not read: the devices of a platform are alike.
    """
    _lazy_init()
    return lazy.engine().backend.device_name()


def get_device_capability(which: Which = None) -> tuple[int, int]:
    """A version pair, for programs that ask; XLA hides the real one.

    Args:
        which: not read.

    Returns:
        ``(1, 0)``.
    """
    return (1, 0)


def synchronize(which: Which = None) -> None:
    """Hand on what is recorded and wait until everything has run. Errors surface here.

    Before the device has been started there is nothing to wait for.

    Args:
        which: not read: all devices are waited for.

    Raises:
        ExecutionError: a chunk failed; the text names its operations and your lines.

    Example:
        ```python
        x = torch.ones(3, device="tpu")
        y = x + 1  # written down
        torch.tpu.synchronize()  # computed
        ```
    """
    if lazy.is_initialised():
        lazy.core().synchronize()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 works: yes.

    Args:
        including_emulation: whether a dtype counts that is computed by another; it changes nothing.
    """
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that ``torch.autocast("tpu")`` may lower to: bfloat16 and float16."""
    return [torch.bfloat16, torch.float16]


def is_autocast_enabled() -> bool:
    """Whether autocast is on for this device."""
    return torch.is_autocast_enabled("tpu")


# ---- streams and events: docs/streams.md ----------------------------------------------------


class Stream(torch.Stream):
    """A queue of calls, which become programs of their own: see docs/streams.md.

    Every thread begins on a stream of its own. What one makes and another reads is ordered by
    itself. There are 32 to be made, which are then handed out again, as on CUDA.
    """

    def __new__(cls, device: Which = None, priority: int = 0, **kwargs: Any) -> Stream:
        """A stream on a device; starts the device.

        Args:
            device: index, string or ``torch.device``; ``None`` is the current one.
            priority: not read: the device has no priorities.
            kwargs: what PyTorch itself gives, to make the object of a stream that there is.

        Raises:
            RuntimeError: there is no device of this index.
        """
        _lazy_init()
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("tpu", _index(device)))


class Event(torch.Event):
    """A point on a stream; complete once what was recorded on it before has run.

    Recording one neither hands on nor waits, unless it times: it remembers the position.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False) -> Event:
        """An event, which is on no stream yet; starts the device.

        Args:
            enable_timing: whether it has a time.
            blocking: as ``torch.Event`` takes it.
        """
        _lazy_init()
        return super().__new__(cls, device="tpu", enable_timing=enable_timing, blocking=blocking)

    def record(self, stream: torch.Stream | None = None) -> Event:  # type: ignore[override]
        """Remember the present position of a stream.

        Args:
            stream: the stream; ``None`` is the calling thread's current one.

        Returns:
            The event itself.
        """
        super().record(stream)
        return self

    def elapsed_time(self, other: torch.Event) -> float:
        """Milliseconds from this event to another, as both were recorded.

        Args:
            other: an event of the device, of this class or PyTorch's own.

        Raises:
            ValueError: one of them does not time, or has not been recorded.
        """
        return lazy.core().elapsed(self, other)


def current_stream(which: Which = None) -> torch.Stream:
    """The calling thread's current stream; starts the device.

    Args:
        which: the device; ``None`` is the current one.
    """
    _lazy_init()
    found = torch.accelerator.current_stream(_index(which))
    return _as_stream(found, found.stream_id)


def default_stream(which: Which = None) -> torch.Stream:
    """The stream on which the first thread that used the device began; starts the device.

    Args:
        which: the device; ``None`` is the current one.
    """
    _lazy_init()
    return _as_stream(torch.accelerator.current_stream(_index(which)), 0)


def _as_stream(like: torch.Stream, number: int) -> torch.Stream:
    return Stream(stream_id=number, device_index=like.device_index, device_type=like.device_type)


@contextlib.contextmanager
def stream(chosen: torch.Stream | None) -> Iterator[None]:
    """Context manager: run the block on a stream, and on its device.

    Args:
        chosen: the stream; ``None`` changes nothing.

    Example:
        ```python
        side = torch.tpu.Stream()
        with torch.tpu.stream(side):
            y = torch.ones(3, device="tpu") * 2
        print(y.sum().item())  # 6.0
        ```
    """
    if chosen is None:
        yield
        return
    with device(chosen.device):
        before = torch.accelerator.current_stream(chosen.device)
        torch.accelerator.set_stream(chosen)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)


def set_stream(chosen: torch.Stream | None) -> None:
    """Make a stream the calling thread's current one.

    Args:
        chosen: the stream; ``None`` changes nothing.
    """
    if chosen is not None:
        torch.accelerator.set_stream(chosen)


# ---- random state ---------------------------------------------------------------------------


def _default(which: Which) -> torch.Generator:
    return default_generators()[_index(which)]


def default_generators() -> tuple[torch.Generator, ...]:
    """The generator of every device, which operators use where none is given; starts the device.

    Returns:
        One ``torch.Generator`` a device, by index. They draw the same numbers in every mode, and
        other ones than the CPU's.
    """
    _lazy_init()
    return lazy.generators()


def manual_seed(seed: int) -> None:
    """Seed every device's generator, as ``torch.manual_seed`` does too.

    Before the first use of the device the seed is remembered, and starts nothing.

    Args:
        seed: any integer that ``torch.Generator.manual_seed`` takes.
    """
    if not lazy.is_initialised():
        lazy.remember_seed(int(seed))
        return
    for generator in default_generators():
        generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device's generator; the same as ``manual_seed``.

    Args:
        seed: any integer that ``torch.Generator.manual_seed`` takes.
    """
    manual_seed(seed)


def seed() -> int:
    """Seed the current device's generator from the operating system; starts the device.

    Returns:
        The seed.
    """
    return int(_default(None).seed())


def seed_all() -> None:
    """Seed every device's generator from the operating system; starts the device."""
    for generator in default_generators():
        generator.seed()


def initial_seed() -> int:
    """The seed of the current device's generator; starts the device."""
    return int(_default(None).initial_seed())


def get_rng_state(which: Which = "tpu") -> torch.Tensor:
    """The state of a device's generator.

    Before the first use of the device it is the state that the generators will start with, and
    nothing is started.

    Args:
        which: the device; one without an index is the current one.

    Returns:
        A CPU tensor, uint8[16]: seed and offset, a copy.

    Example:
        ```python
        state = torch.tpu.get_rng_state()
        a = torch.rand(4, device="tpu")
        torch.tpu.set_rng_state(state)
        assert torch.equal(a, torch.rand(4, device="tpu"))
        ```
    """
    if not lazy.is_initialised():
        return lazy.random_state()
    return _default(which).get_state()


def set_rng_state(state: torch.Tensor, which: Which = "tpu") -> None:
    """Restore a state from ``get_rng_state``.

    Before the first use of the device it is remembered, for every device.

    Args:
        state: a CPU tensor, uint8[16], which is copied.
        which: the device; one without an index is the current one.

    Raises:
        RuntimeError: the tensor is no such state.
    """
    if not lazy.is_initialised():
        lazy.remember_random(state)
        return
    _default(which).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The state of every device's generator; starts the device.

    Returns:
        CPU tensors, uint8[16], by index, as ``get_rng_state`` gives one.
    """
    return [generator.get_state() for generator in default_generators()]


def set_rng_state_all(states: Iterable[torch.Tensor]) -> None:
    """Restore states from ``get_rng_state_all``; starts the device.

    Args:
        states: one for each device, by index.

    Raises:
        ValueError: there are more or fewer than devices.
        RuntimeError: one of them is no state.
    """
    for generator, state in zip(default_generators(), states, strict=True):
        generator.set_state(state)
