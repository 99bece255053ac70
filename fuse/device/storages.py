"""Methods of ``torch.UntypedStorage`` that read memory at its data pointer, where no memory is.

PyTorch's other methods go through tensors, and are right for any device. A typed storage calls
these of the untyped one that it holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fuse.errors import UnsupportedError, describe
from fuse.trace.source import user_line


def register() -> None:
    """Have each of ``METHODS`` answer for storages of the device from now on; once."""
    for name, method in METHODS.items():
        if hasattr(torch.UntypedStorage, name):  # versions of PyTorch lack some
            _replace(name, method)


@functools.cache
def typed(name: str) -> type:
    """The legacy class of typed storages that ``name`` says, as ``torch.tpu.FloatStorage``: never
    instantiated, but what ``TypedStorage.type()`` and ``isinstance`` go by."""
    dtype = torch.storage._storage_type_to_dtype_map()[name]
    return type(
        name,
        (torch.storage._LegacyStorage,),
        {"__module__": "torch.tpu", "_dtype": dtype, "dtype": dtype},
    )


def _replace(name: str, ours: Callable[..., Any]) -> None:
    plain = getattr(torch.UntypedStorage, name)
    if hasattr(plain, "of_fuse"):
        return

    @functools.wraps(plain)
    def method(self: torch.UntypedStorage, *arguments: Any) -> Any:
        if self.device.type != "tpu":
            return plain(self, *arguments)
        return ours(plain, self, *arguments)

    method.of_fuse = True  # type: ignore[attr-defined]
    setattr(torch.UntypedStorage, name, method)


def _item(plain: Callable[..., Any], storage: torch.UntypedStorage, index: Any) -> Any:
    """A byte as an int; PyTorch makes a slice a second storage inside of the first one's memory."""
    if not isinstance(index, slice):
        return plain(storage, index)
    raise UnsupportedError(
        describe(
            "a slice of a storage shares its memory, which a storage of the tpu device cannot",
            operator="UntypedStorage.__getitem__",
            operands=[f"{storage.nbytes()} bytes", str(index)],
            source=user_line(),
            hint="slice a tensor, or storage.cpu(), which is a copy",
        )
    )


def _read(plain: Callable[..., Any], storage: torch.UntypedStorage, *arguments: Any) -> Any:
    """What reads the memory reads a copy of it on the host."""
    return plain(storage.cpu(), *arguments)


def _written(plain: Callable[..., Any], storage: torch.UntypedStorage, *arguments: Any) -> Any:
    """What writes to the memory writes to a copy of it on the host, which is copied back."""
    host = storage.cpu()
    found = plain(host, *arguments)
    storage.copy_(host)
    return storage if found is host else found


METHODS: dict[str, Callable[..., Any]] = {
    "__getitem__": _item,
    "_byteswap": _written,
    "_set_from_file": _written,
    "_write_file": _read,
}
"""By name; each takes PyTorch's own, the storage, and the arguments."""
