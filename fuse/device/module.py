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

from fuse.device import lazy, unused

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
    """Start the device now instead of at its first use."""
    _lazy_init()


def is_initialized() -> bool:
    """Whether the device has been started."""
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
    """The calling thread's current device index."""
    if not lazy.is_initialised():
        return 0
    return lazy.core().get_device()


def set_device(device: Which) -> None:
    """Make ``device`` (index, string or ``torch.device``) the calling thread's current one."""
    _lazy_init()
    lazy.core().set_device(_index(device))


class device:  # noqa: N801  (the name PyTorch looks for)
    """Context manager: a current device for the block."""

    def __init__(self, which: Which) -> None:
        """``which`` is an index, a string, a ``torch.device`` or ``None``; -1 changes nothing."""
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
    """The platform's own name of a device, for example ``cpu`` or ``NVIDIA H200``."""
    _lazy_init()
    return lazy.engine().backend.device_name()


def get_device_capability(which: Which = None) -> tuple[int, int]:
    """A version pair, for programs that ask; XLA hides the real one."""
    return (1, 0)


def synchronize(which: Which = None) -> None:
    """Hand on what is recorded and wait until everything has run. Errors surface here."""
    if lazy.is_initialised():
        lazy.core().synchronize()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 works: yes."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that autocast may lower to."""
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
        """A stream on ``device``; the device has no priorities."""
        _lazy_init()
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("tpu", _index(device)))


class Event(torch.Event):
    """A point on a stream; complete once what was recorded on it before has run.

    Recording one neither hands on nor waits, unless it times: it remembers the position.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False) -> Event:
        """An event, which times if asked to."""
        _lazy_init()
        return super().__new__(cls, device="tpu", enable_timing=enable_timing, blocking=blocking)

    def record(self, stream: torch.Stream | None = None) -> Event:  # type: ignore[override]
        """Remember the present position of a stream, the current one's; returns the event."""
        super().record(stream)
        return self


def current_stream(which: Which = None) -> torch.Stream:
    """The calling thread's current stream."""
    _lazy_init()
    found = torch.accelerator.current_stream(_index(which))
    return _as_stream(found, found.stream_id)


def default_stream(which: Which = None) -> torch.Stream:
    """The stream on which the first thread that used the device began."""
    _lazy_init()
    return _as_stream(torch.accelerator.current_stream(_index(which)), 0)


def _as_stream(like: torch.Stream, number: int) -> torch.Stream:
    return Stream(stream_id=number, device_index=like.device_index, device_type=like.device_type)


@contextlib.contextmanager
def stream(chosen: torch.Stream | None) -> Iterator[None]:
    """Run the block on ``chosen``, and on its device; ``None`` changes nothing."""
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
    """Make a stream the calling thread's current one; ``None`` changes nothing."""
    if chosen is not None:
        torch.accelerator.set_stream(chosen)


# ---- random state ---------------------------------------------------------------------------


def _default(which: Which) -> torch.Generator:
    return default_generators()[_index(which)]


def default_generators() -> tuple[torch.Generator, ...]:
    """The generator of every device, which operators use where none is given."""
    _lazy_init()
    return lazy.generators()


def manual_seed(seed: int) -> None:
    """Seed the current device's generator. Before the first use it is remembered."""
    if not lazy.is_initialised():
        lazy.remember_seed(int(seed))
        return
    for generator in default_generators():
        generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device's generator."""
    manual_seed(seed)


def seed() -> int:
    """Seed the current generator from the operating system; returns the seed."""
    return int(_default(None).seed())


def seed_all() -> None:
    """Seed every generator from the operating system."""
    for generator in default_generators():
        generator.seed()


def initial_seed() -> int:
    """The current generator's seed."""
    return int(_default(None).initial_seed())


def get_rng_state(which: Which = "tpu") -> torch.Tensor:
    """The generator's state: 16 bytes, seed and offset, a CPU uint8 tensor; starts nothing."""
    if not lazy.is_initialised():
        return lazy.random_state()
    return _default(which).get_state()


def set_rng_state(state: torch.Tensor, which: Which = "tpu") -> None:
    """Restore a state from ``get_rng_state``. Before the first use it is remembered."""
    if not lazy.is_initialised():
        lazy.remember_random(state)
        return
    _default(which).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of every device's generator, as ``get_rng_state`` gives one."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state_all(states: Iterable[torch.Tensor]) -> None:
    """Restore states from ``get_rng_state_all``."""
    for generator, state in zip(default_generators(), states, strict=True):
        generator.set_state(state)


# ---- memory ---------------------------------------------------------------------------------


def memory_allocated(which: Which = None) -> int:
    """Bytes behind live storages of the device."""
    return lazy.core().memory()[0] if lazy.is_initialised() else 0


def max_memory_allocated(which: Which = None) -> int:
    """The highest ``memory_allocated`` since the start or the last reset."""
    return lazy.core().memory()[1] if lazy.is_initialised() else 0


def reset_peak_memory_stats(which: Which = None) -> None:
    """Start ``max_memory_allocated`` from the present."""
    if lazy.is_initialised():
        lazy.core().reset_peak()


def memory_reserved(which: Which = None) -> int:
    """Same as ``memory_allocated``: the backend keeps no pool that fuse sees."""
    return memory_allocated(which)


def memory_stats(which: Which = None) -> dict[str, int]:
    """Bytes and storages alive, and the peak."""
    allocated, peak, storages = lazy.core().memory() if lazy.is_initialised() else (0, 0, 0)
    return {
        "allocated_bytes.all.current": allocated,
        "allocated_bytes.all.peak": peak,
        "allocation.all.current": storages,
    }


def memory_summary(which: Which = None, abbreviated: bool = False) -> str:
    """``memory_stats`` as text."""
    stats = memory_stats(which)
    return "\n".join(f"{name:32s} {value:>16,d}" for name, value in stats.items())


def empty_cache() -> None:
    """Let go of what nobody holds: hands on the recorded trace, whose inputs it keeps."""
    synchronize()
