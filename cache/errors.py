"""The errors and the one warning of the cache.

Only ``CacheMissError``, ``CacheTrustError``, ``CacheBundleError`` and ``ConfigError``
reach a user. The others travel between a store and the tier that counts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuse.errors import FuseError

if TYPE_CHECKING:
    from fuse.cache.explain import Explanation


class CacheWarning(UserWarning):
    """Something made the cache slower or smaller than it was asked to be; said once a kind."""


class CacheMissError(FuseError):
    """A miss in mode ``only``; the text is the explanation, ``explanation`` the data."""

    def __init__(self, explanation: Explanation) -> None:
        """Keep the explanation and make its text the message."""
        super().__init__(
            f"a miss in the compilation cache, which is in mode 'only'.\n{explanation.text}\n"
            "  hint: import a bundle of the workload (fuse cache import bundle.zip), "
            "or start once with the cache in mode 'on'"
        )
        self.explanation = explanation


class CacheTrustError(FuseError):
    """A folder or a file that others could have written; the text says how to mend it.

    ``reason`` is one word for the counters: ``owner``, ``writable`` or ``readable``.
    """

    def __init__(self, reason: str, text: str) -> None:
        """Keep the reason beside the text."""
        super().__init__(text)
        self.reason = reason


class CacheBundleError(FuseError):
    """A bundle or a record file that cannot be read."""


class EntryRejectedError(FuseError):
    """Stored bytes that must not be used. ``reason`` is one of ``REJECTION_REASONS``."""

    def __init__(self, reason: str, text: str) -> None:
        """Keep the reason beside the text."""
        super().__init__(text)
        self.reason = reason


class TierBypassError(FuseError):
    """A tier that was not asked, or refused to answer, for a reason that is no damage.

    ``reason`` is one word for the counters; ``warn`` says whether the user should hear of it.
    """

    def __init__(self, reason: str, text: str, *, warn: bool) -> None:
        """Keep reason and loudness beside the text."""
        super().__init__(text)
        self.reason = reason
        self.warn = warn


REJECTION_REASONS = (
    "truncated",  # shorter or longer than its own lengths say
    "magic",  # not an entry at all
    "format",  # an entry of another format version
    "checksum",  # some byte differs from what was written
    "unsigned",  # the tier demands a signature and there is none
    "signature",  # signed under another key, or forged
    "swapped",  # a valid entry, under another key's name
    "header",  # the labelled fields do not give the digest
    "too-large",  # larger than any entry may be
    "foreign",  # not a regular file
    "owner",  # the file belongs to somebody else
    "writable",  # others may write the file
    "load",  # the bytes are what was stored, and the backend refuses them
)
