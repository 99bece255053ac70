"""The settings of the cache, as plain data: whoever reads an environment fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final, get_args

from fuse.errors import ConfigError

Mode = Literal["on", "off", "read-only", "only"]
MODES: tuple[str, ...] = get_args(Mode)
"""The values of ``CacheSettings.mode``."""
MIN_SECRET_BYTES = 16


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """What ``open_cache`` needs.

    Attributes:
        mode: ``on``; ``read-only`` (nothing is written to disk or shared); ``only`` (a miss
            of ``get_or_make`` is an error); ``off`` (disk and shared are not used; the live
            objects of this process are still kept in memory).
        directory: the disk tier's folder, or None for none.
        disk_bytes: the bound on the disk tier.
        memory_entries: a bound on the memory tier.
        memory_bytes: another bound on the memory tier: of the memory that its objects take.
        shared: a folder that several hosts mount, or a URL that fsspec knows, or None.
        shared_options: arguments for the URL's fsspec driver.
        key: the key of the shared tier's signatures, at least 16 bytes.
        record: a file that takes the digest of every key this process uses, or None.
        lease_seconds: the longest wait for another process that makes the same entry.
        disk_seconds: the bound on one operation of the disk tier.
        shared_seconds: the bound on one operation of the shared tier.
        head_start_seconds: how long a read of the shared tier runs before making starts too.
        retry_seconds: how long a tier that failed is left alone.
        exit_seconds: how long the process's end waits for entries not yet written.
        queue_jobs: how many entries may wait to be written, for each tier.
        durable: flush every disk entry to the device.
    """

    mode: Mode = "on"
    directory: Path | None = None
    disk_bytes: int = 4 << 30
    memory_entries: int = 4096
    memory_bytes: int = 2 << 30
    shared: str | None = None
    shared_options: Mapping[str, Any] = field(default_factory=dict)
    key: bytes | None = field(default=None, repr=False)
    record: Path | None = None
    lease_seconds: float = 120.0
    disk_seconds: float = 10.0
    shared_seconds: float = 10.0
    head_start_seconds: float = 0.1
    retry_seconds: float = 30.0
    exit_seconds: float = 1.2
    queue_jobs: int = 1024
    durable: bool = False

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ConfigError: names the setting, what it is and what it may be.
        """
        if self.mode not in MODES:
            raise ConfigError(f"cache mode {self.mode!r} does not exist; choose of {list(MODES)}")
        for name in ("disk_bytes", "memory_entries", "memory_bytes", "queue_jobs"):
            self._at_least(name, 1)
        for name in (
            "lease_seconds",
            "disk_seconds",
            "shared_seconds",
            "head_start_seconds",
            "retry_seconds",
            "exit_seconds",
        ):
            self._at_least(name, 0)
        if self.key is not None and len(self.key) < MIN_SECRET_BYTES:
            raise ConfigError(
                f"the cache key has {len(self.key)} bytes and needs at least {MIN_SECRET_BYTES}.\n"
                "  hint: python -c 'import secrets; print(secrets.token_hex(32))' makes one"
            )
        if self.shared is not None and self.key is None and self.mode != "off":
            raise ConfigError(
                f"the shared cache {self.shared} needs a key: its entries are native code, and "
                "only a signature tells whose.\n"
                "  hint: set FUSE_CACHE_KEY to the same secret on every host"
            )

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        # Written so that a NaN is refused as well.
        if not value >= least:
            raise ConfigError(f"cache setting {name} is {value}; it must be at least {least}")
