"""``torch.tpu.random``: the generators of the devices, their seeds and states."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fuse.device import lazy
from fuse.device.current_device import Which, index_of


def _default(which: Which) -> torch.Generator:
    generators = default_generators()
    return generators[lazy.core().existing_device(index_of(which))]


def default_generators() -> tuple[torch.Generator, ...]:
    """The generator of every device, which operators use where none is given; starts the device.

    Returns:
        One ``torch.Generator`` a device, by index. They draw the same numbers in every mode, and
        other ones than the CPU's.
    """
    lazy.initialise()
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
