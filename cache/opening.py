"""From settings to a cache."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from fuse.cache.circuit_breaker import CircuitBreaker
from fuse.cache.counters import Notices
from fuse.cache.folder import PrivateFolder
from fuse.cache.memory import MemoryTier
from fuse.cache.settings import CacheSettings
from fuse.cache.shared import MountedFolder, RemoteStore
from fuse.cache.store import Store
from fuse.cache.stored import StoredTier
from fuse.cache.tiered import TieredCache
from fuse.errors import ConfigError

_URL_MARK = "://"


def open_cache(settings: CacheSettings) -> TieredCache:
    """Return the cache that ``settings`` ask for. No file is touched before the first use.

    Raises:
        ConfigError: the shared tier is a URL and fsspec is not installed.
    """
    notices = Notices()
    memory = MemoryTier(settings.memory_entries, settings.memory_bytes)
    disk = shared = None
    if settings.mode != "off":
        disk = None if settings.directory is None else _disk(settings, settings.directory, notices)
        shared = None if settings.shared is None else _shared(settings, settings.shared, notices)
    return TieredCache(settings, memory, disk, shared, notices)


def _disk(settings: CacheSettings, directory: Path, notices: Notices) -> StoredTier:
    folder = PrivateFolder(
        directory,
        max_bytes=settings.disk_bytes,
        read_only=settings.mode == "read-only",
        durable=settings.durable,
        # A write takes the lock twice; both waits are part of it, and leave it some time.
        lock_seconds=settings.disk_seconds / 3,
    )
    # Only its owner writes the folder, which is checked at every use: no signature.
    discard = settings.mode != "read-only"
    breaker = CircuitBreaker("disk", settings.disk_seconds, settings.retry_seconds)
    return StoredTier(folder, breaker, notices, secret=None, discard=discard)


def _shared(settings: CacheSettings, place: str, notices: Notices) -> StoredTier:
    store: Store
    if _URL_MARK in place:
        if importlib.util.find_spec("fsspec") is None:
            raise ConfigError(
                f"the shared cache {place} is a URL, and fsspec is not installed.\n"
                "  hint: pip install fsspec, and the driver of the URL's scheme "
                "(s3fs for s3, gcsfs for gs)"
            )
        store = RemoteStore(place, options=settings.shared_options)
    else:
        store = MountedFolder(Path(place))
    # What is wrong there may be right for another host with another key: never removed.
    breaker = CircuitBreaker("shared", settings.shared_seconds, settings.retry_seconds)
    return StoredTier(store, breaker, notices, secret=settings.key, discard=False)
