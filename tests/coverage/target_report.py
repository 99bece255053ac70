"""What compiles for targets, put into ``docs/op-coverage.md`` beside what ran here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.coverage.record import HOST, Record, load

TITLE = "## Compiled for TPUs and GPUs"
NEXT = "## Expected failures"
HERE = "xla fused"
"""The column that says what runs natively on this machine."""
_ROW = re.compile(r"\| ((?:op|module|optim):\S+|entry|---) \|")
_LENGTH = 100
COLUMNS = 7
"""Of the table without targets: the entry's name, and two backends in three modes."""

Targets = Mapping[str, dict[str, Record]]


def file_of(target: str) -> str:
    """The name of the file of a target's records; a topology's colon is no part of it."""
    return f"target-{target.replace(':', '-')}.jsonl"


def targets_in(folder: Path) -> dict[str, dict[str, Record]]:
    """The records of every target in ``folder``."""
    files = sorted(folder.glob("target-*.jsonl"))
    return {path.stem.removeprefix("target-"): load(path) for path in files}


def merge(document: Path, targets: Targets) -> None:
    """Write the section and the columns of ``targets`` into a document that is there."""
    document.write_text(with_targets(document.read_text(), targets))


def with_targets(text: str, targets: Targets) -> str:
    """The document with a section of totals and a column a target, in place of earlier ones."""
    if not targets:
        return text
    text = re.sub(rf"{TITLE}\n.*?(?={NEXT})", "", text, flags=re.S)
    head, found, rest = text.partition(NEXT)
    table = "\n".join(_row(line, targets) for line in rest.splitlines())
    section = "\n".join(_section(targets, _native_here(rest)))
    return f"{head}{section}\n{found}{table}\n"


def _native_here(text: str) -> set[str]:
    """The keys of the table whose cell of ``HERE`` is ``native``."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if _ROW.match(line)]
    if not rows or HERE not in rows[0]:
        return set()
    at = rows[0].index(HERE)
    return {row[0] for row in rows if len(row) > at and row[at] == "native"}


def _section(targets: Targets, native: set[str]) -> list[str]:
    lines = [
        TITLE,
        "",
        "By `fuse coverage --target`, with the compiler of each: nothing ran there, and nothing "
        "is compared.",
        "An entry compiles where all its dtypes do; *host* where an operator of it is known not "
        "to,",
        "*not run* where it was not asked for: `--quick` asks for a fixed part.",
        "",
        "| target | entries | compile | native there, of those that are here |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, records in targets.items():
        good = {key for key, one in records.items() if all(o.agrees for o in one.checks.values())}
        known, total = native & set(records), max(len(records), 1)
        there = {key for key in known & good if records[key].native}
        share = f"{len(there)} of {len(known)}"
        lines.append(
            f"| {name} | {len(records)} | {len(good)} ({len(good) / total:.1%}) | {share} |"
        )
    return [*lines, ""]


def _row(line: str, targets: Targets) -> str:
    """A row of the table with the columns of ``targets`` at its end."""
    found = _ROW.match(line)
    if not found:
        return line
    cells = line.strip().strip("|").strip().split(" | ")
    cells = cells[:COLUMNS]
    if found[1] == "entry":
        added = [f"{name} compiles" for name in targets]
    elif found[1] == "---":
        added = ["---" for _ in targets]
    else:
        added = [_cell(records.get(found[1])) for records in targets.values()]
    return f"| {' | '.join([*cells, *added])} |"


def _cell(record: Record | None) -> str:
    if record is None:
        return "not run"
    failed = [outcome for outcome in record.checks.values() if not outcome.agrees]
    if failed:
        return failed[0].reason.replace("|", "\\|").replace("\n", " ")[:_LENGTH]
    host = {name for o in record.checks.values() if o.status == HOST for name in o.fallbacks}
    return f"host: {', '.join(f'`{name}`' for name in sorted(host))}" if host else "yes"
