"""docs/upstream.md: how many of PyTorch's tests pass on the device, and why others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.upstream.files import FILES
from tests.upstream.judge import Judged

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upstream.md"


def write(files: Sequence[Judged], count: int, seed: int) -> None:
    """Write the page anew."""
    counted = sum(one.counted for one in files)
    lanes = list(files[0].passed)
    passed = {lane: sum(one.passed[lane] for one in files) for lane in lanes}
    reasons = Counter(reason for one in files for reason in one.listed.values())
    outside = {lane: sum(one.outside[lane] for one in files) for lane in lanes}
    shares = " and ".join(
        f"{passed[lane] / counted:.2%} pass in the {lane} lane "
        f"({passed[lane] / (counted - outside[lane]):.2%} of those that neither README rules out "
        "nor the test itself, which asks for the CPU)"
        for lane in lanes
    )
    lines = [
        "# PyTorch's own tests",
        "",
        "Made by `make test-pytorch`; do not edit. PyTorch's test files that ask the same of every",
        "device, none of them written here, run on `tpu`. Only tests that pass on the CPU count.",
        "",
        f"Of {counted:,} tests (up to {count} a file, drawn by seed {seed})",
        f"{shares}.",
        "Skipped: what the test itself asks of other devices only.",
        "",
        "| file | tests | run | "
        + "".join(f"pass, {lane} | " for lane in lanes)
        + "skipped | not |",
        "| --- | ---: | ---: |" + " ---: |" * len(lanes) + " ---: | ---: |",
    ]
    for one in files:
        of = " | ".join(str(one.passed[lane]) for lane in lanes)
        lines.append(
            f"| {one.file} | {one.tests:,} | {one.counted} | {of} | {one.skipped} | "
            f"{len(one.listed) + len(one.failed)} |"
        )
    missing = [file for file in FILES if file not in {one.file for one in files}]
    if missing:
        lines += ["", f"Not run this time: {', '.join(missing)}."]
    lines += ["", "| why a test does not pass | tests |", "| --- | ---: |"]
    lines += [f"| {reason} | {number} |" for reason, number in reasons.most_common()]
    PAGE.write_text("\n".join(lines) + "\n")
