"""Which versions of PyTorch and JAX the device works with, and what differs between them.

Python that is written for one version stands here and nowhere else, each name with the versions
it is for and why; C++ that is would stand in ``native/include/versions.h``, and there is none:
the native core compiles against every version from ``OLDEST`` to ``NEWEST`` as it is. What of
JAX's inside is there, ``fuse.backends.xla.dispatch`` asks JAX itself.
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import Final

import torch

from fuse.errors import VersionError, describe

DISTRIBUTION: Final = "torch-fuse"
"""The name on the registry, where ``fuse`` is another project."""
OLDEST: Final = {"torch": "2.11", "jax": "0.10"}
"""Older ones are refused; the same bounds as in pyproject.toml."""
NEWEST: Final = {"torch": "2.15", "jax": "0.12"}
"""The newest that docs/versions.md has results for; any patch of them counts as them."""


class VersionWarning(UserWarning):
    """A version newer than any that the device was tested with."""


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers: ``2.13.0+cpu`` and ``2.13.0.dev1`` are ``(2, 13, 0)``."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading.group().split("."))) if leading else ()


CLAMP_DROPS_BOUNDS: Final = numbers(torch.__version__)[:2] >= (2, 15)
"""From PyTorch 2.15 on `clamp` and `hardtanh` drop a bound that no integer of the dtype reaches,
and refuse one that all would have to become. Before, they convert bounds as other operators do."""


@functools.cache
def floats_truncate() -> bool:
    """Whether a float converts to an integer dtype where its whole part fits, as 255.5 to uint8.

    So from PyTorch 2.15 on; before, the float itself must fit. Asked of PyTorch, not of its number.
    """
    try:
        torch.zeros(1, dtype=torch.uint8).fill_(255.5)
    except RuntimeError:
        return False
    return True


@functools.cache
def check(package: str, version: str) -> None:
    """Whether ``package``, ``"torch"`` or ``"jax"``, is one to go on with; asked at its first use.

    Warns once with ``VersionWarning`` where it is newer than any that was tested. Raises
    ``VersionError`` where it is too old.
    """
    oldest, newest = OLDEST[package], NEWEST[package]
    if numbers(version)[:2] < numbers(oldest):
        raise VersionError(
            describe(
                f"the tpu device needs {package} {oldest} or newer, and this is {version}",
                hint=f"pip install '{package}>={oldest}'",
            )
        )
    if numbers(version)[:2] > numbers(newest):
        warnings.warn(
            f"{package} {version} is newer than {newest}, the newest that the tpu device has been "
            "tested with; it goes on. If something fails, update fuse, or "
            f"pip install '{package}=={newest}.*'",
            VersionWarning,
            stacklevel=2,
        )


FLOAT8_MOST = 448.0
"""The largest number of float8_e4m3fn."""


@functools.cache
def float8_saturates() -> bool:
    """Whether PyTorch converts what is larger to that, infinities too; older ones make NaN of it.

    The CPU's kernel is asked, once: the device's rules do as it does.
    """
    most = torch.tensor([2 * FLOAT8_MOST]).to(torch.float8_e4m3fn).float()
    return bool(most.isfinite().all())
