"""The ``fuse cache`` command: what is stored, and carrying it to other machines."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fuse.cache import (
    CacheTrustError,
    StoredTier,
    TierBypassError,
    TieredCache,
    clear,
    export_bundle,
    import_bundle,
    listing,
    open_cache,
    prune,
    read_record,
    verify,
)
from fuse.engine.executables import cache_settings, secret
from fuse.errors import ConfigError, FuseError

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
DIGITS = 12
"""Characters of a digest that a listing shows."""


def main(arguments: Sequence[str]) -> int:
    """Run one action; 0 if all went well, 1 if something is wrong, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    action: Callable[[argparse.Namespace, TieredCache], int] = options.action
    try:
        return action(options, open_cache(cache_settings()))
    except (FuseError, OSError) as error:
        print(f"fuse cache: {error}", file=sys.stderr)
        return 1


def stats(options: argparse.Namespace, cache: TieredCache) -> int:
    """Entries, bytes and place of each stored tier."""
    settings = cache.settings
    print(f"mode    {settings.mode}")
    places = {"disk": str(settings.directory), "shared": str(settings.shared)}
    status = 0
    for name in _names(cache):
        tier = cache.tier(name)
        try:
            contents = tier.run(tier.store.contents)
        except (TierBypassError, CacheTrustError, OSError) as error:
            print(f"{name:8}{places[name]}: {error}")
            status = 1
            continue
        size = sum(stored.size for stored in contents)
        bound = f" of {human(settings.disk_bytes)}" if name == "disk" else ""
        print(f"{name:8}{len(contents)} entries, {human(size)}{bound}, in {places[name]}")
    return status


def show(options: argparse.Namespace, cache: TieredCache) -> int:
    """One line an entry, the most recently used first."""
    for listed in listing(cache.tier(options.tier)):
        digest, size = listed.stored.digest[:DIGITS], human(listed.stored.size)
        if listed.header is None:
            print(f"{digest}  {size:>10}  {'':16}  cannot be read: {printable(listed.problem)}")
            continue
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(listed.header.created))
        print(f"{digest}  {size:>10}  {made}  {printable(listed.header.key.label)}")
        if options.fields:
            for name, value in listed.header.key.fields:
                first, _, rest = value.partition("\n")
                more = f" (and {rest.count(chr(10)) + 1} lines)" if rest else ""
                print(f"    {printable(name)}: {printable(first)}{more}")
    return 0


def remove(options: argparse.Namespace, cache: TieredCache) -> int:
    """Remove every entry."""
    print(f"{clear(cache.tier(options.tier))} entries removed")
    return 0


def shrink(options: argparse.Namespace, cache: TieredCache) -> int:
    """Remove the least recently used entries until the rest fits."""
    directory = cache.settings.directory if options.tier == "disk" else None
    removed = prune(cache.tier(options.tier), options.max_bytes, directory)
    print(f"{removed} entries removed")
    return 0


def check(options: argparse.Namespace, cache: TieredCache) -> int:
    """Read every entry; 1 where one must not be used."""
    found = verify(cache.tier(options.tier))
    print(f"{found.sound} entries are sound")
    for digest, reason in found.rejected.items():
        print(f"{digest[:DIGITS]}  rejected: {reason}")
    for name in found.foreign:
        print(f"{printable(name)}  is no entry")
    return 1 if found.rejected else 0


def export(options: argparse.Namespace, cache: TieredCache) -> int:
    """Write a bundle; 1 where an entry that was asked for is missing or damaged."""
    digests = None if options.used is None else read_record(options.used)
    tiers: list[StoredTier] = [cache.tier(name) for name in _names(cache)]
    report = export_bundle(options.bundle, tiers, digests=digests, secret=secret())
    print(f"{len(report.digests)} entries, {human(report.size)}, written to {options.bundle}")
    for digest in report.missing:
        print(f"{digest[:DIGITS]}  is in no tier", file=sys.stderr)
    return _rejected(report.rejected) or int(bool(report.missing))


def take(options: argparse.Namespace, cache: TieredCache) -> int:
    """Take a bundle's entries; 1 where one was refused."""
    report = import_bundle(options.bundle, cache.tier(options.tier), secret=secret())
    print(f"{len(report.digests)} entries, {human(report.size)}, taken from {options.bundle}")
    return _rejected(report.rejected)


def _rejected(reasons: dict[str, str]) -> int:
    for name, reason in reasons.items():
        print(f"{printable(name)[:DIGITS]}  rejected: {reason}", file=sys.stderr)
    return int(bool(reasons))


def _names(cache: TieredCache) -> list[str]:
    """The stored tiers of a cache; raises ``ConfigError`` where there are none."""
    names = [name for name in cache.stats()["tiers"] if name != "memory"]
    if not names:
        raise ConfigError("the cache has no stored tier: FUSE_CACHE=off")
    return names


def printable(text: str) -> str:
    """Text of a store that others may write, without what a terminal would obey."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def human(size: int) -> str:
    """Bytes as people read them, with binary units."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def byte_count(text: str) -> int:
    """A number of bytes, with an optional binary unit: ``500M``, ``2G``.

    Raises ``argparse.ArgumentTypeError`` for anything else.
    """
    matched = re.fullmatch(r"(\d+)([kmgt]?)(?:i?b)?", text.strip().lower())
    if matched is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 500M or 2G")
    return int(matched[1]) * UNITS[matched[2]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fuse cache", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="ACTION")

    def command(
        name: str, action: Callable[[argparse.Namespace, TieredCache], int], tier: bool = True
    ) -> argparse.ArgumentParser:
        text = (action.__doc__ or "").split("\n")[0]
        added = commands.add_parser(name, help=text[:1].lower() + text[1:], description=text)
        added.set_defaults(action=action)
        if tier:
            added.add_argument("--tier", choices=("disk", "shared"), default="disk")
        return added

    command("stats", stats, tier=False)
    command("list", show).add_argument(
        "--fields", action="store_true", help="show the fields of every key"
    )
    command("clear", remove)
    command("prune", shrink).add_argument(
        "--max-bytes", type=byte_count, required=True, help="what may stay, such as 500M"
    )
    exporting = command("export", export, tier=False)
    exporting.add_argument("bundle", type=Path)
    exporting.add_argument(
        "--used", type=Path, help="only the entries that this file of FUSE_CACHE_RECORD names"
    )
    command("import", take).add_argument("bundle", type=Path)
    command("verify", check)
    return parser
