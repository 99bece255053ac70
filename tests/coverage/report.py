"""The report of every mode and backend: ``docs/op-coverage.md``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fuse import config
from tests.coverage import special
from tests.coverage.expected import reasons
from tests.coverage.record import HOST, NATIVE, Outcome, Record, load

DOCUMENT = Path("docs/op-coverage.md")

HEAD = """# Operator coverage

Made by `make op-coverage`; do not edit. Every entry of PyTorch's own databases (`op_db`,
`module_db`, `optim_db`) runs on the device and on PyTorch's CPU, and the results are compared:
values within the dtype's tolerance; shapes, dtypes, strides, aliasing and the type of errors
exactly. *Native* means that the backend ran all of it; *host* that it agrees but an operator,
which is named, ran by PyTorch's CPU kernel; *fails* gives the first difference. Random entries
are compared by distribution and by repeating the seed. Which of several equal elements an index
names PyTorch leaves open, unless a sort is asked to be stable: such indices have to lead to the
CPU's values, and those of `sort`, `argsort` and `topk` must name every element once. Factors that
are unique up to signs or phases are compared by what they stand for. Scaled products of 8-bit
floats are compared with PyTorch's kernel without oneDNN, whose overflow differs from one CPU to
the next.

An entry counts where all its samples agree. Forward means every dtype of float32, bfloat16,
int64, bool and complex64 that PyTorch's CPU supports for the entry.
"""

KINDS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("op", "forward", lambda name: name.startswith("forward")),
    ("op", "gradient", lambda name: name.startswith("gradient")),
    ("op", "out=", lambda name: name == "out="),
    ("op", "in-place", lambda name: name == "in-place"),
    ("op", "non-contiguous inputs", lambda name: name == "non-contiguous"),
    ("op", "zero-size inputs", lambda name: name == "zero-size"),
    ("op", "errors", lambda name: name == "errors"),
    ("module", "modules", lambda name: True),
    ("optim", "optimizers", lambda name: True),
)
"""Database, title, and which checks of an entry the line of the totals counts."""


def target_file(target: str) -> str:
    """The name of the file of a target's records; a topology's colon is no part of it."""
    return f"target-{target.replace(':', '-')}.jsonl"


Runs = dict[tuple[str, str], dict[str, Record]]


def write(folder: Path, keys: Sequence[str], document: Path) -> None:
    """Write the report of the records in ``folder``; what was not run is marked so."""
    runs: Runs = {
        (backend, mode): load(folder / f"{backend}-{mode}.jsonl")
        for backend in config.BACKENDS
        for mode in config.MODES
    }
    document.parent.mkdir(parents=True, exist_ok=True)
    parts = [HEAD, *_totals(runs, keys), *_expected(runs), *_excluded(keys), *_rows(runs, keys)]
    document.write_text("\n".join(parts) + "\n")


def tally(
    records: dict[str, Record], keys: Sequence[str], database: str, counts: Callable[[str], bool]
) -> tuple[int, int, int]:
    """Entries with such a check, those of them that agree, and those wholly native."""
    total = agree = native = 0
    for key in keys:
        if not key.startswith(f"{database}:") or key not in records:
            continue
        chosen = [
            outcome
            for name, outcome in records[key].checks.items()
            if counts(name) or name == "run"
        ]
        if not chosen:
            continue
        total += 1
        agree += all(outcome.agrees for outcome in chosen)
        native += all(outcome.status == "native" for outcome in chosen)
    return total, agree, native


def _totals(runs: Runs, keys: Sequence[str]) -> list[str]:
    lines = [
        "## Totals",
        "",
        "| backend | mode | what | entries | agree | native |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for (backend, mode), records in runs.items():
        if not records:
            lines.append(f"| {backend} | {mode} | not run | | | |")
            continue
        for database, title, counts in KINDS:
            total, agree, native = tally(records, keys, database, counts)
            if total:
                lines.append(
                    f"| {backend} | {mode} | {title} | {total} "
                    f"| {agree} ({agree / total:.1%}) | {native} ({native / total:.1%}) |"
                )
    return [*lines, "", *_shares(runs)]


def share(one: dict[str, Record], other: dict[str, Record]) -> tuple[int, int]:
    """Checks that run natively in ``one``, and those of them that do so in ``other`` too."""
    names = [
        (key, name) for key, r in one.items() for name, o in r.checks.items() if o.status == NATIVE
    ]
    checks = [other[key].checks.get(name) if key in other else None for key, name in names]
    return len(names), sum(o is not None and o.status == NATIVE for o in checks)


def _shares(runs: Runs) -> list[str]:
    lines = []
    for mode in config.MODES:
        known, found = runs[("xla", mode)], runs[("numpy", mode)]
        if known and found:
            total, shared = share(known, found)
            lines.append(
                f"- {mode}: of {total} checks that run natively on XLA, {shared} "
                f"({shared / max(total, 1):.1%}) do so on NumPy."
            )
    return [*lines, ""] if lines else []


def _expected(runs: Runs) -> list[str]:
    lines = ["## Expected failures", ""]
    known: dict[str, list[str]] = {}
    for (backend, mode), records in runs.items():
        if records:
            for (key, check), reason in reasons(mode, backend).items():
                places = known.setdefault(reason, [])
                text = f"`{key}` {check}"
                if text not in places:
                    places.append(text)
    lines += [f"- {reason}: {', '.join(places)}" for reason, places in known.items()]
    return [*lines, "" if known else "None.\n"]


def _excluded(keys: Sequence[str]) -> list[str]:
    lines = ["## Not run", ""]
    for key in keys:
        reason = special.excluded(key)
        if reason is not None:
            lines.append(f"- `{key}`: {reason}")
    return [*lines, ""]


def _rows(runs: Runs, keys: Sequence[str]) -> list[str]:
    used = [(pair, records) for pair, records in runs.items() if records]
    titles = [f"{backend} {mode}" for (backend, mode), _ in used]
    lines = [
        "## Entries",
        "",
        f"| entry | {' | '.join(titles)} |",
        f"| --- |{' --- |' * len(titles)}",
    ]
    for key in keys:
        if special.excluded(key) is None:
            cells = [_cell(records.get(key)) for _, records in used]
            lines.append(f"| {key} | {' | '.join(cells)} |")
    return lines


def _cell(record: Record | None) -> str:
    if record is None:
        return "not run"
    failed = [(name, o) for name, o in record.checks.items() if not o.agrees]
    if failed:
        return "; ".join(f"fails {name}: {_plain(outcome)}" for name, outcome in failed)
    host = {name for o in record.checks.values() if o.status == HOST for name in o.fallbacks}
    if host:
        return f"host: {', '.join(f'`{name}`' for name in sorted(host))}"
    return "native" if record.checks else "nothing to compare"


def _plain(outcome: Outcome) -> str:
    return outcome.reason.replace("|", "\\|").replace("\n", " ")[:160]
