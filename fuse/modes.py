"""The three eager modes, as process-wide state and as context managers."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch

from fuse import config
from fuse.backends import registry
from fuse.device import lazy

Model = TypeVar("Model")


def set_mode(mode: str, *, check: str | None = None) -> None:
    """Choose ``debug``, ``strict`` or ``fused`` for the whole process; cuts first.

    Args:
        mode: Debug runs one operation, waits and checks it; Strict runs one operation an
            executable without waiting; Fused records, plans and fuses.
        check: ``"nan"`` makes Debug stop at the first non-finite floating-point result.

    Raises:
        ConfigError: there is no such mode or check.

    Example:
        ```python
        fuse.set_mode("debug", check="nan")
        try:
            torch.zeros(2, device="tpu").log()
        except RuntimeError as error:
            print(type(error).__name__)  # NonFiniteError
        fuse.set_mode("fused")
        ```
    """
    config.choice("mode", mode, config.MODES)
    if check is not None:
        config.choice("check", check, ("nan",))
    engine = lazy.engine()
    lazy.core().set_mode(lazy.MODES[mode])
    engine.mode, engine.check = mode, check


def get_mode() -> str:
    """The current mode's name: ``debug``, ``strict`` or ``fused``; starts nothing."""
    return lazy.engine().mode if lazy.is_initialised() else config.mode()


def set_backend(name: str) -> None:
    """Choose the backend for the whole process; every tensor keeps its value.

    Args:
        name: ``xla``, ``numpy`` (slow: the readable definition of every operator), or
            ``module:function``, which returns a ``fuse.backends.base.Backend``.

    Raises:
        ConfigError: there is no such backend.

    Example:
        ```python
        x = torch.arange(3.0, device="tpu")
        fuse.set_backend("numpy")
        print((x * 2).tolist())  # [0.0, 2.0, 4.0]
        fuse.set_backend("xla")
        ```
    """
    lazy.switch_backend(name)


def get_backend() -> str:
    """The current backend's name, as ``set_backend`` takes it; starts nothing."""
    return lazy.engine().backend.name if lazy.is_initialised() else config.backend()


class _EagerMode(Generic[Model]):
    """A mode for a block; wrapped around a model, the model runs on the device in it.

    Entering yields the model wrapper (or ``self`` without a model). With a model, its
    parameters and buffers live on the device inside the block, tensors in calls are moved
    there, and on exit the model is back on the device it came from, with its new values.
    Modes nest and may be entered again.
    """

    mode = ""

    def __init__(
        self, model: Model | None = None, *, backend: str | None = None, check: str | None = None
    ) -> None:
        self.model = model
        self.backend = None if backend is None else registry.check(backend)
        self.check = check
        self._outer: list[tuple[str, str | None, str]] = []
        self._home: list[dict[str, torch.device]] = []

    def __enter__(self) -> Any:
        engine = lazy.engine()
        self._outer.append((engine.mode, engine.check, engine.backend.name))
        if self.backend is not None:
            set_backend(self.backend)
        set_mode(self.mode, check=self.check)
        if isinstance(self.model, torch.nn.Module):
            self._home.append({name: t.device for name, t in _tensors(self.model).items()})
            self.model.to("tpu")
        return self

    def __exit__(self, *_: object) -> None:
        mode, check, backend = self._outer.pop()
        try:
            if isinstance(self.model, torch.nn.Module):
                _send_home(self.model, self._home.pop())
        finally:
            set_mode(mode, check=check)
            if lazy.engine().backend.name != backend:
                set_backend(backend)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model on the device; tensors among the arguments are moved there."""
        if self.model is None or not callable(self.model):
            raise TypeError(f"{type(self).__name__}() wraps no model to call")
        moved, options = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: t.to("tpu"), (args, kwargs)
        )
        return self.model(*moved, **options)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the model's: ``parameters()``, ``train()``, ``state_dict()``."""
        if name.startswith("_") or self.__dict__.get("model") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.model, name)


class FusedEager(_EagerMode[Model]):
    """Fused Eager for a block, or around a model: records, plans and fuses.

    Around a model, its parameters and buffers live on the device inside the block, tensors in calls
    are moved there, and on exit the model is back where it came from, with its new values: the same
    tensors, changed in place. Results stay on the device. Modes nest and may be entered again; on
    exit the mode, the check and the backend of before come back.

    Args:
        model: what runs on the device in the block; a ``torch.nn.Module``, or anything callable.
        backend: the block's backend; the current one where none is given.
        check: as for ``set_mode``.

    Raises:
        ConfigError: there is no such backend, or, on entering, no such check.

    Example:
        ```python
        model = torch.nn.Linear(8, 2)  # on the CPU
        with fuse.FusedEager(model) as m:
            y = m(torch.ones(4, 8))  # float32[4, 2] on the device
        print(y.device, model.weight.device)  # tpu:0 cpu
        ```
    """

    mode = "fused"


class StrictEager(_EagerMode[Model]):
    """Strict Eager for a block, or around a model: one operation an executable, without waiting.

    What fusing changes is seen by running once so. Otherwise it is as ``FusedEager``.

    Args:
        model: what runs on the device in the block.
        backend: the block's backend; the current one where none is given.
        check: as for ``set_mode``.

    Raises:
        ConfigError: there is no such backend, or, on entering, no such check.
    """

    mode = "strict"


class DebugEager(_EagerMode[Model]):
    """Debug Eager for a block, or around a model: runs one operation, waits, and checks indices.

    An error is raised at the operation and line that made it. Otherwise it is as ``FusedEager``.

    Args:
        model: what runs on the device in the block.
        backend: the block's backend; the current one where none is given.
        check: ``"nan"`` stops at the first non-finite floating-point result.

    Raises:
        ConfigError: there is no such backend, or, on entering, no such check.
        NonFiniteError: in the block, with ``check="nan"``.

    Example:
        ```python
        with fuse.DebugEager(check="nan"):
            y = torch.ones(3, device="tpu").log()  # zeros: nothing to say
        ```
    """

    mode = "debug"


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _send_home(model: torch.nn.Module, home: dict[str, torch.device]) -> None:
    devices = set(home.values())
    model.to(next(iter(devices)) if len(devices) == 1 else "cpu")
    for name, tensor in _tensors(model).items():
        if len(devices) > 1 and name in home:
            tensor.data = tensor.data.to(home[name])
