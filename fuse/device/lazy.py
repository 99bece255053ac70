"""Starts the device at its first use and holds the one native core and engine."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch._C._dynamo import eval_frame as _dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils import _python_dispatch

from fuse import config, versions
from fuse.device import inductor, unused
from fuse.device.started import (
    FORKED,
    Started,
    begin,
    device,
    in_bad_fork as in_bad_fork,
    is_initialised as is_initialised,
)
from fuse.errors import FuseError, describe

if TYPE_CHECKING:
    from fuse.device._core import Core
    from fuse.engine.engine import Engine
    from fuse.engine.targeted import Targeted

Result = TypeVar("Result")

MODES = {"debug": 0, "strict": 1, "fused": 2}
ENDING = describe(
    "the tpu device has stopped, for the process is ending",
    hint="read tensors before the interpreter is taken down: not in a finaliser",
)

_STATE = struct.Struct("=QQ")
_DEFAULT_SEED = 67280421310721  # PyTorch's, c10::default_rng_seed_val
_START_SECONDS = 60.0  # at exit, for a start that hangs
_starting = threading.RLock()  # held by the thread that starts the device
_has_started = False  # to the end
_when_started: list[Callable[[], None]] = []
_aside: tuple[str, str] | None = None
_random = _STATE.pack(_DEFAULT_SEED, 0)


def _forked() -> None:
    global _starting
    _starting = threading.RLock()  # the thread that held it is not in the child


os.register_at_fork(after_in_child=_forked)


def step_aside(why: str, hint: str) -> None:
    """The device is not registered in this process: from here on a start is an error."""
    global _aside
    _aside = why, hint


def aside() -> tuple[str, str] | None:
    """Why the device is not registered in this process, and a hint; None where it can be."""
    return _aside


def when_started(function: Callable[[], None]) -> None:
    """Call ``function`` at the end of the device's start."""
    _when_started.append(function)


def core() -> Core:
    """The native core; starts the device."""
    return initialise().core


def engine() -> Engine:
    """The engine; starts the device."""
    return initialise().engine


def generators() -> tuple[torch.Generator, ...]:
    """Every device's default generator."""
    return initialise().generators


def remember_seed(seed: int) -> None:
    """Seed with this once the device starts."""
    remember_random(_STATE.pack(seed & (1 << 64) - 1, 0))


def remember_random(state: bytes | torch.Tensor) -> None:
    """Give the generators this state, seed and offset, once the device starts."""
    global _random
    _random = state if isinstance(state, bytes) else bytes(state.tolist())


def random_state() -> torch.Tensor:
    """The state that the generators will start with: 16 bytes, a CPU uint8 tensor."""
    return torch.frombuffer(bytearray(_random), dtype=torch.uint8)


def outside_dynamo(function: Callable[[], Result]) -> Callable[[], Result]:
    """``function``, which Dynamo never traces, nor what it calls: of the modules imported there it
    would give up half-way. ``torch.compiler.disable`` says so too, but loads Dynamo: a second.
    """
    skip = _dynamo._FrameAction.SKIP
    _dynamo.set_code_exec_strategy(function.__code__, _dynamo._FrameExecStrategy(skip, skip))
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # where a call is inlined
    return function


@outside_dynamo
def initialise() -> Started:
    """Load the native core, start the backend and register every kernel, once; the device."""
    global _has_started
    if not _has_started:
        with _starting:
            # There already where another thread was first, or where the start itself asks.
            if not is_initialised():
                # Imported here: the cache's package takes 30 ms, and `import torch` must not.
                importlib.import_module("fuse.cache.background").call_at_exit(_await_start)
                with _uncollected(), _outside_modes():
                    _start()
                _has_started = True
    return device()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection in the block: a pass over all of torch takes a tenth of a second,
    and several would look at modules being imported, which live as long as the process.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_freeze_count() == 0:
                # What was imported goes to the oldest generation without being looked at: two
                # passes over it, 40 ms, would follow. What the program has frozen stays so.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@contextlib.contextmanager
def _outside_modes() -> Iterator[None]:
    """The block's own tensors are plain ones of the CPU, whatever the program has set around it: a
    default device, which may be this one, a mode that sees all calls, inference.
    """
    with (
        torch._C.DisableTorchFunction(),
        _python_dispatch._disable_current_modes(),
        torch.inference_mode(False),
    ):
        yield


def _start() -> None:
    versions.check("torch", torch.__version__)
    if (reason := aside()) is not None:
        why, hint = reason
        raise FuseError(describe(why, hint=hint))
    # Imported here: building the core and starting JAX take seconds, and `import torch` must not.
    core = importlib.import_module("fuse.device.core")
    operators = importlib.import_module("fuse.trace.operators")
    meta = importlib.import_module("fuse.trace.meta")
    importlib.import_module("fuse.trace.without_dynamo").leave_out()
    composites = importlib.import_module("fuse.device.composites")
    sparse = importlib.import_module("fuse.device.sparse")
    elsewhere = [*composites.KERNELS, *sparse.OF_DENSE]
    unused.hide_from_autograd()
    with core.being_built():  # while JAX starts, and the backend builds what it needs
        instance = importlib.import_module("fuse.engine.engine").Engine()
    native = core.load()
    native.refuse_with(FuseError, FORKED, ENDING)
    native.initialise(
        instance,
        instance.backend.device_count(),
        [name for name in _recorded_overloads(instance.backend.has_rule) if name not in elsewhere],
        elsewhere,
        list(operators.for_the_core()),
    )
    instance.forget_streams_by(native.forget_soon)
    native.set_mode(MODES[instance.mode])
    native.set_limit(instance.max_operations)
    bound_uncompiled(native, instance)
    native.set_memory_bounds(*instance.memory.bounds())
    _keep_interrupts(native, instance.backend.collector())
    started = begin(native, instance)
    started.libraries.append(meta.register())
    meta.speak_unless(native.infers)
    started.libraries.append(composites.register())
    started.libraries.append(sparse.register())
    started.libraries.append(importlib.import_module("fuse.device.host_operators").register())
    devices = range(instance.backend.device_count())
    started.generators = tuple(map(native.default_generator, devices))
    for generator in started.generators:
        generator.set_state(random_state())
    importlib.import_module("fuse.device.sending").register()
    importlib.import_module("fuse.device.sharing").register()
    importlib.import_module("fuse.device.storages").register()
    register_optimizer_step_post_hook(_optimizer_step)
    atexit.register(_shut_down)
    unused.step_back(native.pin)
    inductor.device_started()
    for function in _when_started:
        function()


def is_fake() -> bool:
    """Whether the device has been started and holds no data: shapes only."""
    return is_initialised() and engine().backend.name == "fake"


def bound_uncompiled(native: Core, instance: Engine) -> None:
    """Tell the core which calls may run uncompiled, as the engine has it now."""
    native.set_tier(config.TIERS.index(instance.tier))


def switch_backend(name: str) -> None:
    """Run everything on another backend from now on; what is recorded runs on the old one."""
    if not engine().uses(name):
        core().forget()
        engine().switch(name)
        bound_uncompiled(core(), engine())
        core().set_memory_bounds(*engine().memory.bounds())


def forget() -> None:
    """Drop what is known of calls, whose operators may mean something else from now on.

    What is recorded runs before that, as it was recorded.
    """
    core().forget()
    engine().forget()


def set_target(targeted: Targeted | None) -> None:
    """Plan for a target from now on, ``Engine.open_target``'s, or with ``None`` no more.

    What is recorded runs as it was planned; known streams are forgotten.
    """
    native = core()
    native.forget()
    engine().set_target(targeted)
    bound_uncompiled(native, engine())


def _keep_interrupts(native: Core, collector: Any) -> None:
    """Have the runtime's garbage collected without a function of Python's, where a signal's
    exception would be lost."""
    if collector is not None and collector[0] in gc.callbacks:
        gc.callbacks[gc.callbacks.index(collector[0])] = native.without_arguments(collector[1])


def _optimizer_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Cut at the end of an optimizer step: the natural end of a training step."""
    if torch.compiler.is_compiling():
        return  # a compiled step ends with its graph
    groups = optimizer.param_groups
    if any(p.device.type == "tpu" for group in groups for p in group["params"][:1]):
        if not all(group.get("capturable", True) for group in groups):
            device().core.refuse_in_graph(
                f"{type(optimizer).__name__} counts its steps on the host; make it with "
                "capturable=True"
            )
        device().core.cut("optimizer_step")


def _await_start() -> None:
    """At exit: let a daemon thread finish a start, which cut off half-way, in the import of JAX,
    aborts the process; and the hooks that it registers are called then."""
    if _starting.acquire(timeout=_START_SECONDS):
        _starting.release()


def _shut_down() -> None:
    """At exit: finish what runs, then leave Python objects to the interpreter."""
    if not in_bad_fork():
        finished = device().engine.close()
        device().core.shut_down(not finished)


def _recorded_overloads(has_rule: Callable[[str], bool]) -> list[str]:
    """Overloads that the recorder must claim by name.

    PyTorch prefers its composite kernels to a backend's fallback, which would turn one call
    into several. Claimed are the functional overloads without a composite kernel, and those
    with one that the backend has a rule for.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    schemas_of = functools.cache(torch._C._jit_get_schemas_for_operator)  # of every overload
    claimed = []
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::"):
            continue
        name = full.removeprefix("aten::")
        base, _, overload = full.partition(".")
        schema = next((s for s in schemas_of(base) if s.overload_name == overload), None)
        if schema is None:
            continue  # an implementation without a definition
        if name in _TOO_LAX:
            claimed.append(name)
            continue
        if any(argument.alias_info is not None for argument in schema.arguments):
            continue  # views have kernels of their own; writes reach the fallback
        if has_kernel(full, "PrivateUse1"):
            continue  # the native core's own
        if name in _COMPOSED or not has_rule(name) and any(has_kernel(full, k) for k in _COMPOSITE):
            continue
        if has_kernel(full, "CompositeImplicitAutograd") and not has_kernel(full, "Autograd"):
            continue  # autograd differentiates its parts
        claimed.append(name)
    return claimed


_TOO_LAX = frozenset({"addr_", "addr.out", "mode.values"})
"""Overloads that write, whose composite kernels resize what they must not or know no device
but PyTorch's own."""
_COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
_COMPOSED = frozenset(
    [
        "zeros",
        "ones",
        "full",
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
        "new_empty_strided",
        "rand",
        "randn",
        "randint",
        "randint.low",
        "rand_like",
        "randn_like",
        "randint_like",
        "randint_like.low_dtype",
        "randperm",
        "arange",
        "arange.start",
        "arange.start_step",
        "linspace",
        "logspace",
        "eye",
        "eye.m",
        "scalar_tensor",
        "_to_copy",
        "unsafe_split.Tensor",
        "unsafe_split_with_sizes",
        "_unsafe_view",
    ]
)
"""Factories that PyTorch composes of the core's kernels, and operators that are views in all but
their schemas."""
