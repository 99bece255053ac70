"""A compiled chunk: fresh from the compiler, or loaded from bytes of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import jax
import numpy as np
from jax._src.lib import xla_client
from jaxlib import lapack

from fuse.backends.xla import dispatch

_MAGIC: Final = b"fuse-xla-2\n"
_LAPACK: Final = b"lapack_"  # what the names of jaxlib's kernels begin with


class XlaExecutable:
    """Final. Runs on arrays of the first device of its platform.

    Called through JAX's compiled dispatch: about 10 us, and 0.5 to 1 us an array.
    """

    def __init__(
        self, loaded: Any, words: int, places: tuple[int, ...], compiled: Any = None
    ) -> None:
        """``loaded`` is the runtime's executable; ``compiled`` JAX's, where it compiled it.

        ``places`` says where the program returns each of the results.
        """
        self._loaded = loaded
        self._words = words
        self._places = places
        moved = places != tuple(range(len(places)))
        self._arranged = itemgetter(*places) if moved else None
        if compiled is None:
            compiled = dispatch.compiled(loaded) if dispatch.AVAILABLE else dispatch.plain(loaded)
        self._call = compiled
        # Without varying numbers the packed array is the same empty one at every call.
        self._empty = jax.device_put(np.empty((0, 2), np.uint32)) if words == 0 else None

    def __call__(self, scalars: bytes, arrays: Sequence[Any]) -> list[Any]:
        """Run on ``arrays`` with the packed 64-bit words ``scalars``; results may be pending."""
        words: Any = self._empty
        if words is None:
            words = np.frombuffer(scalars, np.uint32).reshape(-1, 2)
        results = self._call(words, *arrays)
        return list(results if self._arranged is None else self._arranged(results))

    def dump(self) -> bytes:
        """The executable as bytes: a short JSON head, then what XLA serialises."""
        head = json.dumps({"words": self._words, "places": self._places}).encode()
        return b"".join((_MAGIC, len(head).to_bytes(4, "big"), head, self._loaded.serialize()))

    @staticmethod
    def load(data: bytes) -> XlaExecutable:
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
            prepare: Callable[[str, Any], str] = lapack.prepare_lapack_call
            prepare("potrf", np.dtype(np.float32))
        loaded = device.client.deserialize_executable(data[start + size :], devices, None)
        return XlaExecutable(loaded, int(head["words"]), tuple(head["places"]))
