"""The section and the columns of targets in the coverage's document."""

from __future__ import annotations

from tests.coverage.record import FAILED, HOST, Outcome, Record
from tests.coverage.target_report import file_of, with_targets

DOCUMENT = """# Operator coverage

## Expected failures

None.

## Entries

| entry | xla debug | xla strict | xla fused | numpy debug | numpy strict | numpy fused |
| --- | --- | --- | --- | --- | --- | --- |
| op:add | native | native | native | native | native | native |
| op:mm | native | native | native | native | native | native |
| op:sort | native | native | host: `sort` | native | native | native |
"""


def records() -> dict[str, Record]:
    return {
        "op:add": Record("op", "add", 1.0, {"compile": Outcome()}),
        "op:mm": Record("op", "mm", 1.0, {"compile int64": Outcome(FAILED, reason="a | b")}),
        "op:sort": Record("op", "sort", 1.0, {"compile": Outcome(HOST, fallbacks=("sort",))}),
    }


def test_a_target_is_a_section_and_a_column() -> None:
    text = with_targets(DOCUMENT, {"v5e": records()})
    assert "| v5e | 3 | 2 (66.7%) | 1 of 2 |" in text
    assert "| numpy fused | v5e compiles |" in text
    assert "| op:add | native | native | native | native | native | native | yes |" in text
    assert "| native | a \\| b |" in text
    assert "| native | host: `sort` |" in text


def test_a_later_run_replaces_what_an_earlier_one_wrote() -> None:
    once = with_targets(DOCUMENT, {"v5e": records()})
    assert with_targets(once, {"v5e": records()}) == once
    both = with_targets(once, {"v5e": records(), "v6e": {}})
    assert both.count("## Compiled for TPUs and GPUs") == 1
    assert "| v5e compiles | v6e compiles |" in both
    assert with_targets(DOCUMENT, {}) == DOCUMENT


def test_a_topology_has_a_file() -> None:
    assert file_of("v5e:4x4") == "target-v5e-4x4.jsonl"
