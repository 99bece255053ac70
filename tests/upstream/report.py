"""A suite's page: how many of its tests pass on the device, and why others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.upstream.judge import Judged
from tests.upstream.suite import Suite


def write(of: Suite, files: Sequence[Judged], count: int, seed: int) -> None:
    """Write the page anew; what was not run this time is said."""
    lines = [*of.head, "", *_totals(files, count, seed), *_table(of, files, apart=False)]
    if of.apart:
        lines += ["", "Drawn by seed and not looked at before they were run:"]
        lines += _table(of, files, apart=True)
    missing = sorted(set(of.files) - {one.file for one in files})
    if missing:
        lines += ["", f"Not run this time: {', '.join(missing)}."]
    lines += ["", *_reasons(files)]
    of.page.write_text("\n".join(lines) + "\n")


def _totals(files: Sequence[Judged], count: int, seed: int) -> list[str]:
    """The shares of all files together."""
    drawn = "all of each file"
    if count:
        drawn = f"up to {count} a file and what earlier runs had, drawn by seed {seed}"
    counted = sum(one.counted for one in files)
    shares = [_share(files, lane) for lane in _lanes(files)]
    return [
        f"Of {counted:,} tests ({drawn})",
        f"{' and '.join(shares)}.",
        "Skipped: what the test itself asks of other devices only.",
    ]


def _share(files: Sequence[Judged], lane: str) -> str:
    """How many of the tests that ran in a lane pass there."""
    here = [one for one in files if lane in one.passed]
    counted = sum(one.ran[lane] for one in here)
    if not counted:
        return f"none ran in the {lane} lane"
    passed = sum(one.passed[lane] for one in here)
    outside = sum(one.outside[lane] for one in here)
    every = sum(one.counted for one in files)
    some = f", where {counted:,} of them ran," if counted < every else ""
    return (
        f"{passed / counted:.2%} pass in the {lane} lane{some} "
        f"({passed / max(1, counted - outside):.2%} of those that neither README rules out "
        "nor the test itself, which asks for the CPU)"
    )


def _lanes(files: Sequence[Judged]) -> list[str]:
    return list(dict.fromkeys(lane for one in files for lane in one.passed))


def _table(of: Suite, files: Sequence[Judged], apart: bool) -> list[str]:
    """A row a file; a lane in which it is not run has a dash."""
    lanes = _lanes(files)
    lines = [
        "",
        f"| {of.first_column} | tests | run | "
        + "".join(f"pass, {lane} | " for lane in lanes)
        + "skipped | not |",
        "| --- | ---: | ---: |" + " ---: |" * len(lanes) + " ---: | ---: |",
    ]
    for one in files:
        if (one.file in of.apart) == apart:
            passed = " | ".join(_passed(one, lane) for lane in lanes)
            lines.append(
                f"| {one.file} | {one.tests:,} | {one.counted} | {passed} | {one.skipped} | "
                f"{len(one.listed) + len(one.failed)} |"
            )
    return lines


def _passed(one: Judged, lane: str) -> str:
    """How many pass, and of how many where a lane ran fewer than others."""
    if not one.ran.get(lane):
        return "-"
    of = f" of {one.ran[lane]}" if one.ran[lane] != one.counted else ""
    return f"{one.passed[lane]}{of}"


def _reasons(files: Sequence[Judged]) -> list[str]:
    """How many tests do not pass for each reason."""
    reasons = Counter(reason for one in files for reason in one.listed.values())
    if not reasons:
        return ["No test has a reason not to pass."]
    lines = ["| why a test does not pass | tests |", "| --- | ---: |"]
    return lines + [f"| {reason} | {number} |" for reason, number in reasons.most_common()]
