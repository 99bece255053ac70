"""The tiered compilation cache: what one process made, no other makes again.

It knows plain bytes and labelled fields only; see ``docs/ARCHITECTURE.md`` for its place.
``open_cache`` builds a cache, ``TieredCache.get_or_make`` is its one hot method, and
``control`` and ``bundle`` hold what people do to a cache.
"""

from fuse.cache.bundle import BundleReport, export_bundle, import_bundle
from fuse.cache.control import Listed, Verified, clear, listing, prune, verify
from fuse.cache.errors import (
    CacheBundleError,
    CacheMissError,
    CacheTrustError,
    CacheWarning,
    EntryRejectedError,
    TierBypassError,
)
from fuse.cache.explain import Difference, Explanation
from fuse.cache.key import Key
from fuse.cache.opening import open_cache
from fuse.cache.permissions import read_secret
from fuse.cache.record import read_record
from fuse.cache.settings import MODES, CacheSettings
from fuse.cache.stored import StoredTier
from fuse.cache.tiered import TieredCache

__all__ = [
    "MODES",
    "BundleReport",
    "CacheBundleError",
    "CacheMissError",
    "CacheSettings",
    "CacheTrustError",
    "CacheWarning",
    "Difference",
    "EntryRejectedError",
    "Explanation",
    "Key",
    "Listed",
    "StoredTier",
    "TierBypassError",
    "TieredCache",
    "Verified",
    "clear",
    "export_bundle",
    "import_bundle",
    "listing",
    "open_cache",
    "prune",
    "read_record",
    "read_secret",
    "verify",
]
