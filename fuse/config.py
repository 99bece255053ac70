"""Every setting, and the only reader of environment variables.

Each function reads its variable when called, so that a test or a program may set it
before the first use of the device. A value that does not exist raises ``ConfigError``
with the valid ones.
"""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path
from typing import Literal, cast

from fuse.errors import ConfigError, describe

MODES = ("debug", "strict", "fused")
BACKENDS = ("xla", "numpy")
FALLBACKS = ("warn", "error", "silent")
CACHE_MODES = ("on", "off", "read-only", "only")
TIERS = ("auto", "compiled", "uncompiled")
OLD_NAMES = {
    "FUSE_COMPILE": "FUSE_TIER=compiled compiles at once and always, as FUSE_COMPILE=wait did",
    "FUSE_SIGHTINGS": "tiers are measured; FUSE_TIER=compiled compiles at once",
    "FUSE_BRIEF_TRACE": "tiers are measured; FUSE_TIER=compiled compiles small traces too",
    "FUSE_SHAPE_CAP": "tiers are measured; FUSE_TIER=compiled compiles every shape",
    "FUSE_WHOLE_TRACE": "the planner chooses by the device",
    "FUSE_START_AHEAD": "known streams are always started ahead",
    "FUSE_CACHE_KEY_FILE": "FUSE_CACHE_KEY=file:PATH names the file",
    "FUSE_SHARED_CACHE_OPTIONS": "fsspec has settings of its own, as FSSPEC_S3='{\"anon\": true}'",
    "FUSE_DEVICE": "FUSE_AUTOLOAD=1 has the name tpu be this device's, as FUSE_DEVICE=fuse did",
    "FUSE_BUILD_SECONDS": "an hour is always given",
}
"""Variables that are read no more, and what takes their place."""
AUTOLOAD = ("auto", "0", "1")
COLLECTIVES = ("auto", "host", "xla")
MOST = 2**63 - 1
"""The largest number that a setting may be: the native core counts in 64 bits."""
MOST_SECONDS = 10**9
"""Thirty years: Python's own waits take no more than some hundred."""
CacheMode = Literal["on", "off", "read-only", "only"]


def choice(what: str, value: str, valid: tuple[str, ...], hint: str = "") -> str:
    """Return ``value`` if it is one of ``valid``; otherwise raise ``ConfigError``."""
    if value not in valid:
        raise ConfigError(
            describe(
                f"unknown {what} {value!r}: the valid ones are {', '.join(map(repr, valid))}",
                hint=hint or f"use one of {', '.join(valid)}",
            )
        )
    return value


def mode() -> str:
    """``FUSE_MODE``: debug, strict or fused (the default)."""
    return choice("mode", os.environ.get("FUSE_MODE", "fused"), MODES)


def backend() -> str:
    """``FUSE_BACKEND``: xla (the default), numpy, or ``module:function``, which makes one."""
    value = os.environ.get("FUSE_BACKEND", "xla")
    return value if ":" in value else choice("backend", value, BACKENDS)


def autoload() -> str:
    """``FUSE_AUTOLOAD``: whether ``import torch`` registers the device: 1, 0 (nor does ``import
    fuse``), or auto (the default): where neither torch_tpu nor a usable accelerator is there."""
    return choice("FUSE_AUTOLOAD", os.environ.get("FUSE_AUTOLOAD", "auto"), AUTOLOAD)


def collectives() -> str:
    """``FUSE_COLLECTIVES``: what moves device tensors between ranks: host (memory to memory), xla,
    JAX's runtime, or auto (the default): host on the CPU platform, xla elsewhere."""
    return choice("FUSE_COLLECTIVES", os.environ.get("FUSE_COLLECTIVES", "auto"), COLLECTIVES)


def target() -> str | None:
    """``FUSE_TARGET``: a TPU or GPU to plan and compile for beside the program itself: ``v5e``."""
    return os.environ.get("FUSE_TARGET") or None


def host_fallback() -> str:
    """``FUSE_HOST_FALLBACK``: warn (once an operator, the default), error, or silent."""
    return choice("FUSE_HOST_FALLBACK", os.environ.get("FUSE_HOST_FALLBACK", "warn"), FALLBACKS)


def tier() -> str:
    """``FUSE_TIER``: auto (the default): the faster one, measured; compiled or uncompiled.

    ``FUSE_COMPILE``, its name until 0.2, gives a warning.
    """
    warn_of_old_names()
    old = {"wait": "compiled"}.get(os.environ.get("FUSE_COMPILE", ""), "auto")
    return choice("FUSE_TIER", os.environ.get("FUSE_TIER", old), TIERS)


@functools.cache
def warn_of_old_names() -> None:
    """Say once which variables of the environment have another name now, or none."""
    for name, instead in OLD_NAMES.items():
        if name in os.environ:
            warnings.warn(f"{name} is no setting any more: {instead}", FutureWarning, stacklevel=2)


def max_operations() -> int:
    """``FUSE_MAX_OPERATIONS``: operations after which a trace is cut (default 16384)."""
    return _positive("FUSE_MAX_OPERATIONS", 16384)


def in_flight_bytes() -> int:
    """``FUSE_IN_FLIGHT_BYTES``: results that running executables may hold (default 2 GiB)."""
    return _positive("FUSE_IN_FLIGHT_BYTES", 2 << 30)


def explain() -> frozenset[str]:
    """``FUSE_EXPLAIN``: a comma-separated set; ``recompiles`` prints every compile's cause."""
    return frozenset(filter(None, os.environ.get("FUSE_EXPLAIN", "").split(",")))


def build_dir() -> Path:
    """``FUSE_BUILD_DIR``: where the native core is built (default: in the user's cache)."""
    return Path(os.environ.get("FUSE_BUILD_DIR") or user_cache() / "native")


def user_cache() -> Path:
    """The user's cache folder for fuse (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fuse"


def compiler() -> str:
    """``CXX``: the C++ compiler that builds the native core (default g++)."""
    return os.environ.get("CXX", "g++")


def memory_entries() -> int:
    """``FUSE_CACHE_ENTRIES``: executables the memory tier holds, and plans may (default 4096)."""
    return _positive("FUSE_CACHE_ENTRIES", 4096)


def memory_bytes() -> int:
    """``FUSE_CACHE_BYTES``: memory of what the memory tier holds, and plans may (default 2 GiB)."""
    return _positive("FUSE_CACHE_BYTES", 2 << 30)


def cache_mode() -> CacheMode:
    """``FUSE_CACHE``: on (the default), off, read-only, or only (a miss is an error)."""
    value = choice("FUSE_CACHE", os.environ.get("FUSE_CACHE", "on"), CACHE_MODES)
    return cast(CacheMode, value)


def cache_dir() -> Path:
    """``FUSE_CACHE_DIR``: the disk tier's folder (default: in the user's cache)."""
    return Path(os.environ.get("FUSE_CACHE_DIR") or user_cache() / "executables")


def disk_bytes() -> int:
    """``FUSE_CACHE_DISK_BYTES``: bytes the disk tier holds (default 4 GiB)."""
    return _positive("FUSE_CACHE_DISK_BYTES", 4 << 30)


def shared_cache() -> str | None:
    """``FUSE_SHARED_CACHE``: a folder that several hosts mount, or a URL that fsspec knows."""
    return os.environ.get("FUSE_SHARED_CACHE") or None


def cache_key() -> bytes | Path | None:
    """``FUSE_CACHE_KEY``: the secret that signs the shared tier's entries, or ``file:`` and the
    path of a file with it, for its owner's eyes only."""
    warn_of_old_names()
    text = os.environ.get("FUSE_CACHE_KEY") or None
    if text is not None and text.startswith("file:"):
        return Path(text.removeprefix("file:"))
    return None if text is None else text.encode()


def cache_record() -> Path | None:
    """``FUSE_CACHE_RECORD``: a file that takes the keys this process uses."""
    path = os.environ.get("FUSE_CACHE_RECORD")
    return Path(path) if path else None


def lease_seconds() -> int:
    """``FUSE_CACHE_LEASE_SECONDS``: the longest wait for another process's compile (120)."""
    return _positive("FUSE_CACHE_LEASE_SECONDS", 120, MOST_SECONDS)


def _positive(name: str, default: int, most: int = MOST) -> int:
    text = os.environ.get(name, str(default))
    # str.isdigit alone takes "²", and int() refuses texts of thousands of digits.
    plain = text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(most))
    if not plain or not 1 <= int(text) <= most:
        raise ConfigError(
            describe(
                f"{name}={_shortened(text)} is not a positive whole number up to {most}",
                hint=f"set {name} to such a number, or unset it: the default is {default}",
            )
        )
    return int(text)


def _shortened(text: str) -> str:
    """``text`` quoted, of a long one the beginning."""
    return repr(text if len(text) <= 40 else text[:40] + "...")
