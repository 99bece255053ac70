"""Executables in the artifacts of ``torch.compiler.save_cache_artifacts``, beside AOTAutograd's.

PyTorch collects bytes as they are made. Executables are large and on the disk already: here they
are read when the artifacts are saved.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Final

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from fuse.cache.bundle import export_bundle, import_bundle
from fuse.cache.stored import StoredTier
from fuse.device import lazy
from fuse.engine.executables import secret
from fuse.errors import ConfigError

TYPE: Final = "fuse_executables"
_numbers: Final = itertools.count()
_given: Final[set[str]] = set()
"""Digests that an artifact of this process has; PyTorch keeps what it was given."""


@CacheArtifactFactory.register
class ExecutablesArtifact(CacheArtifact):
    """The executables that the process has used and no artifact before has, as a bundle."""

    def __init__(self, key: str, content: bytes) -> None:
        """``content``: empty for one that is still to be filled."""
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_content", content)

    @property
    def content(self) -> bytes:
        """The bundle; read from the cache when it is first asked for."""
        found: bytes = self.__dict__["_content"] or _bundle()
        object.__setattr__(self, "_content", found)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutablesArtifact) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def populate_cache(self) -> None:
        """Put them into the disk tier, for this process and later ones."""
        tier = _disk()
        if tier is None or not self.content:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "executables.zip"
            path.write_bytes(self.content)
            import_bundle(path, tier, secret=secret())

    @staticmethod
    def type() -> str:
        """The name among PyTorch's kinds of artifacts."""
        return TYPE


def note() -> None:
    """A graph was compiled: the executables of its calls go into the next artifacts."""
    CacheArtifactManager.record_artifact(TYPE, f"process {next(_numbers)}", b"")


def _bundle() -> bytes:
    tier = _disk()
    if tier is None:
        return b""
    executables = lazy.engine().executables
    wanted = [digest for digest in executables.used() if digest not in _given]
    _given.update(wanted)
    executables.cache.flush()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "executables.zip"
        export_bundle(path, [tier], digests=wanted, secret=secret())
        return path.read_bytes()


def _disk() -> StoredTier | None:
    """The disk tier; none where the cache has none, or the device was never used."""
    lazy.initialise()
    try:
        return lazy.engine().executables.cache.tier("disk")
    except ConfigError:
        return None
