"""What a rule may ask about the operation it emits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.context import Operation, Scalar
from fuse.backends.xla.constants import Constants
from fuse.backends.xla.platform import Platform
from fuse.trace.node import Operand
from fuse.trace.spec import View, contiguous_strides

Number = Scalar | jax.Array
"""A number of PyTorch's: one that varies is a 0-d array."""
_WIDE = {"float16": "float32", "bfloat16": "float32", "complex32": "complex64"}


@dataclass(frozen=True)
class Place:
    """Where an operand lies: ``view`` of the whole buffer ``base``.

    ``base`` is ``None`` where the place varies from run to run, or the buffer is of another dtype.
    ``operand`` is what was read, where the place does not vary.
    """

    base: jax.Array | None
    view: View
    operand: Operand | None = None


@dataclass(frozen=True)
class RuleContext(Operation[jax.Array]):
    """Facts about one operation, its platform and the places of its operands among them.

    Attributes:
        platform: where the program runs, and the kernels that it may call there.
        places: where each operand lies in memory, by the array's ``id``; empty where that is
            not known.
        constants: those of the program.
    """

    platform: Platform = Platform("cpu")
    places: Mapping[int, Place] = field(default_factory=dict)
    constants: Constants | None = None

    def constant(self, value: jax.Array) -> np.ndarray | None:
        """What an operand is in every run of the program; ``None`` where that is not known."""
        place = self.places.get(id(value))
        if place is None or place.operand is None or self.constants is None:
            return None
        return self.constants.read(place.operand)

    def order(self, value: jax.Array) -> tuple[int, ...]:
        """The dimensions of an operand from the largest stride to the smallest.

        So its read lies in memory; a repeated dimension is written out where it stands. An array
        made from an operand counts as row-major.
        """
        place = self.places.get(id(value))
        if place is None or 0 in place.view.strides:
            return tuple(range(value.ndim))
        strides = place.view.strides
        return tuple(sorted(range(value.ndim), key=lambda dim: -strides[dim]))

    def placed(self, value: jax.Array) -> tuple[jax.Array, View]:
        """The buffer that an operand is a part of, and the part; or itself, and all of it."""
        place = self.places.get(id(value))
        if place is None or place.base is None:
            return value, View(str(value.dtype), value.shape, contiguous_strides(value.shape))
        return place.base, place.view

    def promoted(self, *values: jax.Array | Scalar) -> tuple[jax.Array, ...]:
        """Convert operands to ``result_type``; shapes stay as they are."""
        return tuple(jnp.asarray(value).astype(self.result_type) for value in values)

    def computed(self, *values: jax.Array | Scalar) -> tuple[jax.Array, ...]:
        """Convert operands to the dtype PyTorch computes in: ``result_type``, half widened."""
        wide = _WIDE.get(self.result_type, self.result_type)
        return tuple(jnp.asarray(value).astype(wide) for value in values)

    @staticmethod
    def widened(value: jax.Array) -> jax.Array:
        """Widen a half-precision array to float32, for accumulation; others come back as is."""
        wide = _WIDE.get(str(value.dtype))
        return value if wide is None else value.astype(wide)
