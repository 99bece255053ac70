"""Joins a file's results on the CPU with the device's, and with the list of reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.upstream.record import RIGHT, SKIPPED, Log, Outcome
from tests.upstream.suite import Reasons, Suite


@dataclass
class Judged:
    """A file's tests that pass on the CPU: how many, and which do not on the device."""

    file: str
    tests: int
    counted: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    ran: dict[str, int] = field(default_factory=dict)
    """In each lane, how many of those counted ran there: a lane may have a smaller sample."""
    skipped: int = 0
    outside: dict[str, int] = field(default_factory=dict)
    """In each lane, how many of those that do not pass README rules out, or the test itself."""
    listed: dict[str, str] = field(default_factory=dict)
    """Tests with a reason, and the reason."""
    failed: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    """Tests without one: their outcome by lane."""
    unneeded: list[str] = field(default_factory=list)
    """Tests that have a reason and pass in every lane."""

    def line(self) -> str:
        """The counts, for a person who waits."""
        lanes = ", ".join(f"{lane} {count}" for lane, count in self.passed.items())
        return (
            f"{self.file}: {self.counted} of {self.tests} ({lanes}, {self.skipped} skipped there, "
            f"{len(self.listed)} listed, {len(self.failed)} not)"
        )

    def wrong(self) -> list[str]:
        """What is not as the list says: a line a test."""
        lines = [
            f"{self.file}:{name}: {lane}: {one.result}: {one.why.strip()[-300:]}"
            for name, lanes in self.failed.items()
            for lane, one in lanes.items()
        ]
        return lines + [f"{name}: passes, and has a reason not to" for name in self.unneeded]


def _reason(reasons: Reasons, name: str, bad: Mapping[str, Outcome]) -> str | None:
    """Why a test need not pass: by its name, or because it says the same in every lane."""
    named = reasons.by_name(name)
    if named is not None or not bad:
        return named
    found = {reasons.by_text(one.why) for one in bad.values()}
    return found.pop() if len(found) == 1 else None


def judge(of: Suite, file: str, logs: Mapping[str, Log]) -> Judged:
    """The file's results; the first of the logs is the CPU's."""
    (_, cpu), *devices = logs.items()
    found = {lane: log.outcomes() for lane, log in devices}
    asked = (*RIGHT, SKIPPED) if of.accelerators else RIGHT
    judged = Judged(file, cpu.tests())
    judged.passed, judged.ran, judged.outside = (dict.fromkeys(found, 0) for _ in range(3))
    for name, on_cpu in sorted(cpu.outcomes().items()):
        if on_cpu.result not in asked:
            continue
        lanes = {lane: outcomes[name] for lane, outcomes in found.items() if name in outcomes}
        if not lanes:  # not run there: interrupted, or of a smaller sample
            continue
        if any(one.result == SKIPPED for one in lanes.values()):
            judged.skipped += on_cpu.result != SKIPPED
            continue
        judged.counted += 1
        for lane, one in lanes.items():
            judged.ran[lane] += 1
            judged.passed[lane] += one.result in RIGHT
        bad = {lane: one for lane, one in lanes.items() if one.result not in RIGHT}
        reason = _reason(of.reasons, f"{file}:{name}", bad)
        if bad and reason is not None:
            judged.listed[name] = reason
            for lane in bad:
                judged.outside[lane] += reason.startswith(of.reasons.outside)
        elif bad:
            judged.failed[name] = bad
        elif reason is not None and len(lanes) == len(found):
            judged.unneeded.append(f"{file}:{name}")
    known = cpu.outcomes()  # and what did not start there either
    for lane, outcomes in found.items():
        for name, one in outcomes.items():  # a file or a class that did not start
            if name in known or ("." in name and not name.startswith("setUp")):
                continue
            reason = of.reasons.by_text(one.why)
            if reason is None:
                judged.failed.setdefault(name, {})[lane] = one
            else:
                judged.listed[name] = reason
    return judged
