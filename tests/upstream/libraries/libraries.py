"""Libraries whose source distributions have tests of what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jax


@dataclass(frozen=True)
class Library:
    """A source distribution, unpacked in a folder that begins with its name."""

    name: str
    """On the registry, and of the folder."""
    tests: tuple[str, ...]
    """What pytest is given, from the folder."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables of a process whose device is the device."""
    spelt: Mapping[str, str] = field(default_factory=dict)
    """How tests that name the CPU name the device, as regular expressions and texts."""
    unpacked: bool = True
    """Whether its tests are in the source distribution, and not installed with it."""
    before: Callable[[], None] = lambda: None
    """Called in a process whose device is the device."""


def lend_jax_devices() -> None:
    """SciPy's tests of other array libraries ask JAX for the device that PyTorch is to use."""
    devices: Callable[[], list[Any]] = jax.devices
    jax.devices = lambda backend=None: devices()


LIBRARIES: Final = (
    Library(
        "scipy",
        ("--pyargs", "scipy", "-k", "torch"),
        {"SCIPY_ARRAY_API": "1", "SCIPY_DEVICE": "tpu"},
        unpacked=False,
        before=lend_jax_devices,
    ),
    Library("gpytorch", ("test", "--ignore=test/examples")),
    Library("linear_operator", ("test",)),
    Library("zuko", ("tests",)),
    Library("nflows", ("tests",)),
    Library("e3nn", ("tests",)),
    Library("curvlinops_for_pytorch", ("test",), spelt={r'device\("cpu"\)': 'device("tpu")'}),
    Library("torchsde", ("tests",)),
    Library("einops", ("einops/tests",)),
    Library("peft", ("tests",)),
    Library("skorch", ("skorch/tests",)),
    Library("pytorch_ignite", ("tests/ignite/metrics", "tests/ignite/handlers")),
    Library("stable_baselines3", ("tests",)),
    Library("opacus", ("opacus/tests",)),
)
