"""Which kernel the device has for an operator of sparse tensors, and registers it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from fuse.device.composites.out import out_overload
from fuse.device.sparse.borrowed import COMPRESSED, COORDINATES, OF_DENSE
from fuse.device.sparse.host import on_host
from fuse.device.sparse.programs import OF_COMPRESSED, PROGRAMS, Program, into
from fuse.device.started import device
from fuse.trace.functional import find_overload, overload_name

LOOP: Final = "DispatchStub: missing kernel"
"""In the error of a kernel that would compute in memory by a loop of the device's own."""


class _Borrowed:
    """A kernel of PyTorch's CPU; on the host where it turns out to compute in memory."""

    def __init__(self, name: str, key: str) -> None:
        self._name, self._key = name, key

    @functools.cached_property
    def _kernel(self) -> torch._C._SafeKernelFunction:
        return torch.library.get_kernel(find_overload(self._name), self._key)

    @functools.cached_property
    def _tensors(self) -> list[bool]:
        arguments = find_overload(self._name)._schema.arguments
        return [isinstance(one.type, torch.TensorType) for one in arguments]

    def __call__(self, keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        # Numbers that stand for tensors come as numbers, which a boxed call refuses.
        given = [
            torch.tensor(one, device="cpu")
            if tensor and isinstance(one, (int, float, complex))
            else one
            for one, tensor in zip(args, self._tensors, strict=False)
        ]
        try:
            return self._kernel.call_boxed(keys, *given, **kwargs)
        except RuntimeError as error:
            if LOOP not in str(error):
                raise
        return on_host(find_overload(self._name), *args, **kwargs)


def _or_host(name: str, function: Program | None = None) -> Callable[..., Any]:
    """The program, or the host where it does not take the call."""

    def run(*args: Any, **kwargs: Any) -> Any:
        found = None if function is None else function(*args, **kwargs)
        return on_host(find_overload(name), *args, **kwargs) if found is None else found

    return run


def _borrow(library: torch.library.Library, name: str, key: str) -> None:
    library.impl(name, _Borrowed(name, key), with_keyset=True)


def _register(
    ours: str, cpu: str, programs: set[str], borrowed: tuple[str, ...]
) -> torch.library.Library:
    """Kernels of all that PyTorch's CPU has one of for this layout, or PyTorch would compose it."""
    library = torch.library.Library("aten", "IMPL", ours)
    writes = {overload_name(out): name for name in programs if (out := out_overload(name))}
    for name in device().core.overloads_of(cpu):
        written = writes.get(name, name)
        if written in programs:
            makes = PROGRAMS[written]
            library.impl(
                name, _or_host(name, makes if written == name else functools.partial(into, makes))
            )
        elif name in borrowed:
            _borrow(library, name, cpu)
        else:
            library.impl(name, _or_host(name))
    return library


def register() -> tuple[torch.library.Library, ...]:
    """Hand the kernels to PyTorch; they last as long as the returned libraries."""
    dense = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name in OF_DENSE:
        _borrow(dense, name, "CPU")
    return (
        dense,
        _register("SparsePrivateUse1", "SparseCPU", set(PROGRAMS), COORDINATES),
        _register("SparseCsrPrivateUse1", "SparseCsrCPU", OF_COMPRESSED, COMPRESSED),
    )
