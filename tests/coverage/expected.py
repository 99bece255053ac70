"""Checks that are known to fail, each with its reason.

The table keeps the suite honest both ways: a failure that does not stand here fails the run,
and so does an entry of the table that passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.coverage.record import Record


@dataclass(frozen=True, slots=True)
class Expected:
    """A check of an entry that fails, for a reason.

    ``mode`` and ``backend`` narrow it to one; ``None`` means all.
    """

    key: str
    check: str
    reason: str
    mode: str | None = None
    backend: str | None = None

    def applies(self, mode: str, backend: str) -> bool:
        """Whether it is expected in this mode, on this backend."""
        return self.mode in (None, mode) and self.backend in (None, backend)


EXPECTED: tuple[Expected, ...] = ()


def reasons(mode: str, backend: str) -> dict[tuple[str, str], str]:
    """(key, check) -> reason of what is expected to fail."""
    return {(e.key, e.check): e.reason for e in EXPECTED if e.applies(mode, backend)}


def verdict(records: Iterable[Record], mode: str, backend: str, quick: bool = False) -> list[str]:
    """What is wrong with a run: failures that nobody expects, expectations that pass.

    Expectations of checks that an entry does not have are wrong too, except in a ``quick`` run.
    """
    known = reasons(mode, backend)
    problems = []
    for record in records:
        for name, outcome in record.checks.items():
            expected = known.get((record.key, name))
            if not outcome.agrees and expected is None:
                problems.append(f"{record.key} | {name}: {outcome.reason}")
            elif outcome.agrees and expected is not None:
                problems.append(
                    f"{record.key} | {name}: passes, but is expected to fail ({expected}); "
                    "take it out of fuse/coverage/expected.py"
                )
        for (key, check), reason in known.items():
            missing = key == record.key and check not in record.checks
            if missing and not quick and "run" not in record.checks:
                problems.append(f"{key} | {check}: there is no such check ({reason})")
    return problems
