"""Every exception of fuse, and the one function that adds context to an error text.

An error names the operator, the shapes and dtypes it saw, the user's source line,
and a hint. ``describe`` builds that text so that every message reads alike.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence


class FuseError(RuntimeError):
    """Base class of the errors that fuse itself raises."""


class BuildError(FuseError):
    """The native core could not be built or loaded."""


class ConfigError(FuseError, ValueError):
    """A setting has a value that does not exist; the text lists the valid ones."""


class VersionError(FuseError):
    """A package that the device needs is there in too old a version."""


class UnsupportedError(FuseError, NotImplementedError):
    """An operator, dtype or layout that the device or the chosen backend cannot run."""


class HostFallbackError(UnsupportedError):
    """An operator needs the host while ``FUSE_HOST_FALLBACK=error``."""


class ExecutionError(FuseError):
    """A chunk failed while running; names the chunk's operations and source lines."""


class RescueWarning(UserWarning):
    """A chunk failed, as a whole: its operations ran one by one, and nothing is lost."""


class KernelError(FuseError):
    """A kernel's function failed, or cannot be an operator as asked; names kernel and shapes."""


class NonFiniteError(FuseError):
    """Debug Eager with ``check="nan"`` met the first non-finite result."""


class VerifyError(FuseError):
    """A trace or a plan breaks one of its invariants: a bug in fuse, never in user code."""


def describe(
    what: str,
    *,
    operator: str = "",
    operands: Sequence[str] = (),
    source: str = "",
    hint: str = "",
) -> str:
    """Return an error text with the same parts in the same order everywhere.

    Args:
        what: one sentence, what went wrong.
        operator: qualified operator name, for example ``aten::mm``.
        operands: one ``dtype[shape]`` an operand, in order.
        source: the user's ``file:line``, or empty where none is known.
        hint: what the user can do about it.
    """
    parts = [what.rstrip(".") + "."]
    if operator:
        parts.append(f"  operator: {operator}({', '.join(operands)})")
    if source:
        parts.append(f"  at: {source}")
    if hint:
        parts.append(f"  hint: {hint}")
    return "\n".join(parts)


def in_units(nbytes: int) -> str:
    """A size as people read it: ``4.00 TiB``."""
    size, units = float(nbytes), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.2f} {units[0]}" if units[0] != "bytes" else f"{nbytes} bytes"


def warn_or_print(text: str, category: type[Warning], stacklevel: int) -> None:
    """Warn of what costs time and nothing else.

    Where a filter makes warnings errors it is printed instead: raised from within a run or a
    lookup, the error would lose what the program has computed. ``stacklevel`` 1 is the caller.
    """
    try:
        warnings.warn(text, category, stacklevel=stacklevel + 1)
    except category as warning:
        sys.stderr.write(f"{type(warning).__name__}: {warning}\n")
