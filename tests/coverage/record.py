"""Outcomes of checks, and the lines of JSON that keep them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import fuse

NATIVE, HOST, FAILED = "native", "host", "failed"
REASON_LENGTH = 240


@dataclass(slots=True)
class Outcome:
    """One check of one entry.

    Attributes:
        status: ``native``, ``host`` (agrees, and ran partly on the host) or ``failed``.
        samples: how many samples agreed before the first that did not.
        fallbacks: operators that ran on the host.
        reason: why it failed, else empty.
    """

    status: str = NATIVE
    samples: int = 0
    fallbacks: tuple[str, ...] = ()
    reason: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the results were the CPU's."""
        return self.status != FAILED


@dataclass(slots=True)
class Record:
    """Every check of one entry, in one backend and mode."""

    database: str
    entry: str
    seconds: float = 0.0
    checks: dict[str, Outcome] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Database and entry, as the table of expected failures names them."""
        return f"{self.database}:{self.entry}"

    @property
    def native(self) -> bool:
        """Whether every check agrees with nothing on the host."""
        return all(outcome.status == NATIVE for outcome in self.checks.values())

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_line(line: str) -> Record:
        """The inverse of ``to_line``; raises ``ValueError`` for other text."""
        raw: dict[str, Any] = json.loads(line)
        try:
            checks = {
                name: Outcome(
                    check["status"], check["samples"], tuple(check["fallbacks"]), check["reason"]
                )
                for name, check in raw["checks"].items()
            }
            return Record(raw["database"], raw["entry"], raw["seconds"], checks)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a record of a check: {line[:80]!r}") from error


def load(path: Path) -> dict[str, Record]:
    """Records by key; of several for one entry the last counts. A torn last line is dropped."""
    found: dict[str, Record] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                record = Record.from_line(line)
            except ValueError:
                continue  # the process was killed while writing it
            found[record.key] = record
    return found


def end_torn_line(path: Path) -> None:
    """End the last line of a file, if there is one without an end: what follows is a new line."""
    text = path.read_bytes() if path.exists() else b""
    if text and not text.endswith(b"\n"):
        with path.open("ab") as lines:
            lines.write(b"\n")


class NotApplicable(Exception):
    """A check says nothing about this sample."""


def brief(error: BaseException) -> str:
    """An exception's type and first lines, on one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (text if name == "Mismatch" else f"{name}: {text}")[:REASON_LENGTH]


class Fallbacks:
    """Operators that ran on the host since the start of the block."""

    def __init__(self) -> None:
        self._before: Counter[str] = Counter(fuse.stats()["host_fallbacks"])

    def names(self) -> tuple[str, ...]:
        """Their names, sorted."""
        return tuple(sorted(Counter(fuse.stats()["host_fallbacks"]) - self._before))


def outcome_of(samples: Iterator[Any], check: Callable[[Any], None]) -> Outcome | None:
    """Run ``check`` on every sample up to the first failure; ``None`` without samples."""
    fallbacks = Fallbacks()
    outcome = Outcome()
    try:
        for sample in samples:
            with contextlib.suppress(NotApplicable):
                check(sample)
                outcome.samples += 1
    except Exception as error:  # noqa: BLE001  (whatever a check raises is its outcome)
        outcome.status, outcome.reason = FAILED, brief(error)
    outcome.fallbacks = fallbacks.names()
    if outcome.status == NATIVE and outcome.fallbacks:
        outcome.status = HOST
    return outcome if outcome.samples or not outcome.agrees else None
