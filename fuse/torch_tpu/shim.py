"""``fuse.torch_tpu.shim``: what launchers import of ``torch_tpu._internal``, if asked for.

Helion's Pallas backend launches by private names of TorchTPU. While the shim is installed an import
of them finds modules with those names alone, whose kernels are operations of this device. Nothing
installs it but the program: ``import torch_tpu`` fails without, as on any machine that lacks it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

import jax
import torch

from fuse.device import module
from fuse.errors import UnsupportedError, describe
from fuse.kernels.function import spec_of
from fuse.kernels.jax_call import called
from fuse.torch_tpu.pallas import get_default_pallas_mesh

NAME: Final = "torch_tpu"
KIND: Final = "TPU v5 lite"
"""The TPU for which kernels are written where the device is none; a v5e, as JAX names it."""
_made: Final[dict[str, ModuleType]] = {}


class JaxCallable:
    """A JAX function that takes and returns tensors of the device: one operation of a chunk each.

    Attributes:
        name, trace_key: what the launcher calls it.
        jit_fn: takes one array for each tensor; ``jax.jit`` may have wrapped it.
        mesh: of the devices that a kernel of several ranks runs on.
        static_argnums, donate_argnums: none: what is overwritten is named by aliases.
        input_output_aliases: the result, by its number, that a tensor is overwritten with.
        output_shapes, kernel_key_to_mlir_fingerprint: stay empty: no call goes by another way.
    """

    def __init__(
        self,
        name: str,
        jit_fn: Callable[..., Any],
        trace_key: str,
        mesh: jax.sharding.Mesh | None = None,
        input_partition_specs: Sequence[Any] | None = None,
        output_partition_specs: Sequence[Any] | None = None,
        input_output_aliases: Mapping[int, int] | None = None,
    ) -> None:
        self.name, self.jit_fn, self.trace_key, self.mesh = name, jit_fn, trace_key, mesh
        self.input_partition_specs = input_partition_specs
        self.output_partition_specs = output_partition_specs
        self.static_argnums: tuple[int, ...] = ()
        self.input_output_aliases = dict(input_output_aliases or {})
        self.donate_argnums = list(self.input_output_aliases)
        self.output_shapes: dict[str, Any] = {}
        self.kernel_key_to_mlir_fingerprint: dict[str, str] = {}
        self._kernel = called(jit_fn)

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """The function's results, as it arranges them; aliased tensors are overwritten.

        Raises ``KernelError``: the function fails.
        """
        results = self._kernel(*tensors)
        every = results if isinstance(results, (tuple, list)) else (results,)
        for tensor, result in self.input_output_aliases.items():
            tensors[tensor].copy_(every[result])
        return results


def jax_placeholder(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a tensor, as JAX has them."""
    spec = spec_of(tensor)
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype)


def get_tpu_device_name() -> str:
    """The kind of TPU for which kernels are written: that of ``install``, or the device's own."""
    if _kind:
        return _kind[-1]
    name = module.get_device_name()
    return name if name.startswith("TPU") else KIND


_kind: Final[list[str]] = []


def _never(*_: object, **__: object) -> Any:
    """Stands for names that are imported and, as no call is remembered by its key, never called."""
    raise UnsupportedError(
        describe("a kernel is launched by its JaxCallable", operator="torch_tpu._internal.pallas")
    )


def install(kind: str | None = None) -> None:
    """Let ``torch_tpu._internal`` be found from here on; idempotent.

    Args:
        kind: the TPU for which kernels are written, as JAX names it (``"TPU v6 lite"``); that of
            the device where none is given, and a v5e where the device is no TPU.

    Raises:
        UnsupportedError: TorchTPU is installed, or has been imported.
    """
    if sys.modules.get(NAME) is not _made.get(NAME) or (
        not _made and importlib.util.find_spec(NAME) is not None
    ):
        raise UnsupportedError(
            describe(
                "torch_tpu is installed, and its modules are not replaced",
                operator="fuse.torch_tpu.shim.install",
                hint="uninstall torch_tpu, or run its kernels on its own device",
            )
        )
    _kind[:] = [] if kind is None else [kind]
    if not _made:
        _make()
    sys.modules.update(_made)


def remove() -> None:
    """Undo ``install``. What has imported the names keeps them."""
    for name, made in _made.items():
        if sys.modules.get(name) is made:
            del sys.modules[name]
    _made.clear()


@contextlib.contextmanager
def installed(kind: str | None = None) -> Iterator[None]:
    """Context manager: ``install`` for the block, and ``remove`` after it.

    Args:
        kind: as for ``install``.

    Raises:
        UnsupportedError: on entering, as ``install``.
    """
    install(kind)
    try:
        yield
    finally:
        remove()


def _make() -> None:
    modules: dict[str, dict[str, Any]] = {
        "": {},
        "._internal": {},
        "._internal.utils": {},
        "._internal.utils.hardware": {"get_tpu_device_name": get_tpu_device_name},
        "._internal.pallas": {},
        "._internal.pallas.tpu_torch_pallas": {"call_custom_kernel": _never},
        "._internal.pallas.pallas": {
            "JaxCallable": JaxCallable,
            "jax_placeholder": jax_placeholder,
            "get_default_pallas_mesh": get_default_pallas_mesh,
            "_get_kernel_invocation_key": _never,
        },
    }
    for path, names in modules.items():
        made = ModuleType(f"{NAME}{path}", "Made by fuse.torch_tpu.shim.")
        made.__spec__ = ModuleSpec(made.__name__, None, is_package=True)
        made.__path__ = []
        vars(made).update(names)
        _made[made.__name__] = made
        above, _, base = made.__name__.rpartition(".")
        if above:
            setattr(_made[above], base, made)
