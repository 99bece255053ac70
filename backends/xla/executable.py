"""A compiled chunk: fresh from the compiler, or loaded from bytes of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

import jax
import numpy as np
from jax._src.lib import xla_client
from jaxlib import lapack

from fuse.backends.xla import dispatch
from fuse.backends.xla.calling_convention import CallingConvention
from fuse.backends.xla.packed_arrays import PackedArrays, Part, Row, rows_of
from fuse.trace.picker import picker

Weigh = Callable[[int | None], int]
_MAGIC: Final = b"fuse-xla-3\n"
_LAPACK: Final = b"lapack_"  # what the names of jaxlib's kernels begin with


class XlaExecutable:
    """Runs on arrays of one device, the first of its platform unless it says so.

    Called through JAX's compiled dispatch: about 10 us, and 0.5 to 1 us an array.
    """

    def __init__(
        self,
        loaded: Any,
        passing: CallingConvention,
        stacks: PackedArrays,
        weigh: Weigh,
        compiled: Any = None,
        storable: bool = True,
        device: jax.Device | None = None,
    ) -> None:
        """``loaded`` is the runtime's executable; ``compiled`` JAX's, where it compiled it.

        ``weigh`` tells its memory from its stored size. One that is not ``storable`` calls back
        into this process.
        """
        self._loaded = loaded
        self._weigh = weigh
        self._stored: int | None = None
        self.storable = storable
        self._passing = passing
        self._stacks = stacks
        self._taken = picker(passing.inputs) if passing.stacked else None
        self._rows = [picker(places) for places in passing.stacked]
        self._made = sum(passing.made)
        moved = passing.places != tuple(range(len(passing.places)))
        self._arranged = picker(passing.places) if moved else None
        if compiled is None:
            dispatched = dispatch.compiled if dispatch.AVAILABLE else dispatch.plain
            compiled = dispatched(loaded, device)
        self._call = compiled
        # Without varying numbers the packed array is the same empty one at every call.
        nothing = np.empty((0, 2), np.uint32)
        self._empty = jax.device_put(nothing, device) if passing.words == 0 else None
        self._elsewhere: dict[jax.Device, XlaExecutable] = {}

    def __call__(self, scalars: bytes, arrays: Sequence[Part]) -> list[Part]:
        """Run on ``arrays`` with the packed 64-bit words ``scalars``; results may be pending."""
        words: jax.Array | np.ndarray | None = self._empty
        if words is None:
            words = np.frombuffer(scalars, np.uint32).reshape(-1, 2)
        joined = [self._stacks.joined(rows(arrays)) for rows in self._rows]
        if self._taken is not None:
            arrays = self._taken(arrays)
        if Row in map(type, arrays):
            arrays = list(map(self._stacks.array, arrays))
        results = self._call(words, *arrays, *joined)
        if self._made:
            results = self._opened(results)
        return list(results if self._arranged is None else self._arranged(results))

    def on(self, device: jax.Device) -> XlaExecutable:
        """The same for another device: compiled once, and loaded for each."""
        if device not in self._elsewhere:
            self._elsewhere[device] = self._loaded_for(device)
        return self._elsewhere[device]

    def _loaded_for(self, device: jax.Device) -> XlaExecutable:
        try:
            data = self._loaded.serialize() if self.storable else None
        except jax.errors.JaxRuntimeError as error:
            if "UNIMPLEMENTED" not in str(error):
                raise
            data = None  # on CPU, a sort with a comparator of its own
        if data is None:
            return _Away(self, device)
        options = xla_client.CompileOptions()  # else it stays the first device's, by its own
        options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
        devices = xla_client.DeviceList((device,))
        loaded = device.client.deserialize_executable(data, devices, options)
        return XlaExecutable(loaded, self._passing, self._stacks, self._weigh, device=device)

    def _opened(self, results: Sequence[jax.Array]) -> list[Part]:
        """The results with the rows of stacks in their place."""
        first = len(results) - len(self._passing.made)
        opened: list[Part] = list(results[:first])
        for array, count in zip(results[first:], self._passing.made, strict=True):
            opened += rows_of(array, count)
        return opened

    def alone(self, array: Part) -> jax.Array:
        """One of JAX's, which is no row of another."""
        return self._stacks.array(array) if type(array) is Row else array

    def here(self, array: Part) -> jax.Array:
        """An array of another device on the first one."""
        moved: jax.Array = jax.device_put(self.alone(array), jax.devices()[0])
        return moved

    def held_bytes(self) -> int:
        """The memory that it takes on the host, as far as that can be told."""
        return self._weigh(self._stored)

    def dump(self) -> bytes:
        """The executable as bytes: a short JSON head, then what XLA serialises."""
        data = stored(self._passing, self._loaded.serialize())
        self._stored = len(data)
        return data

    @staticmethod
    def load(data: bytes, stacks: PackedArrays, weigh: Weigh) -> XlaExecutable:
        """The inverse of ``dump``. Raises ``ValueError`` for other bytes."""
        if not data.startswith(_MAGIC):
            raise ValueError("these bytes are no stored XLA executable")
        start = len(_MAGIC) + 4
        size = int.from_bytes(data[len(_MAGIC) : start], "big")
        head = json.loads(data[start : start + size])
        device = jax.devices()[0]
        devices = xla_client.DeviceList((device,))
        if data.find(_LAPACK, start + size) >= 0:
            # JAX looks up LAPACK's routines when it traces a call of one; an executable that
            # was traced in another process would call null pointers.
            prepare: Callable[[str, np.dtype], str] = lapack.prepare_lapack_call
            prepare("potrf", np.dtype(np.float32))
        loaded = device.client.deserialize_executable(data[start + size :], devices, None)
        passing = CallingConvention(
            words=int(head["words"]),
            inputs=tuple(head["inputs"]),
            stacked=tuple(map(tuple, head["stacked"])),
            made=tuple(head["made"]),
            places=tuple(head["places"]),
        )
        executable = XlaExecutable(loaded, passing, stacks, weigh)
        executable._stored = len(data)
        return executable


class _Away(XlaExecutable):
    """One that cannot be loaded twice: its arrays go to the first device, and its results back."""

    def __init__(self, own: XlaExecutable, device: jax.Device) -> None:
        self._own, self._device = own, device

    def __call__(self, scalars: bytes, arrays: Sequence[Part]) -> list[Part]:
        return [
            jax.device_put(self._own.alone(one), self._device)
            for one in self._own(scalars, [self._own.here(one) for one in arrays])
        ]


def stored(passing: CallingConvention, serialised: bytes) -> bytes:
    """What ``XlaExecutable.load`` takes: how arrays are passed, and what XLA serialised."""
    head = json.dumps(asdict(passing)).encode()
    return b"".join((_MAGIC, len(head).to_bytes(4, "big"), head, serialised))
