"""``fuse.explain`` as data and as a page: what is in it is what happened."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import fuse
from fuse.engine.timeline import KINDS, Event, recording
from fuse.report.explain_full import folded, full_text
from fuse.report.explain_html import page
from fuse.report.explain_text import LINES, WIDTH, groups, longest, seconds, text, tier_lines
from fuse.report.explanation import Explanation
from tests.device.helpers import DEVICE

LAYERS = 30
TOP = {"seconds", "counts", "timeline", "traces", "steady", "segments", "lines"}
SEGMENT = {"operator", "calls", "tier", "seconds", "trace", "why"}
LINE = {"source", "seconds", "operations", "operators"}
SCREEN = 45
TRACE = {
    "number", "reason", "runs", "planned", "leaves", "operations", "repeats", "decisions",
    "chunks",
}  # fmt: skip
CHUNK = {
    "number", "operations", "inputs", "outputs", "bytes_in", "bytes_out", "donated",
    "executable", "label", "tier", "make_seconds", "run_seconds", "miss",
}  # fmt: skip


def layers() -> torch.Tensor:
    x = torch.full((4, 4), 0.375, device=DEVICE)
    w = torch.eye(4, device=DEVICE)
    for _ in range(LAYERS):
        x = (x @ w).tanh().mul(0.8125).add(x).relu().sub(0.125)
    return x.cpu()


@pytest.fixture(scope="module")
def explained() -> Explanation:
    torch.tpu.init()
    return fuse.explain(layers)


def test_the_data_has_the_documented_keys_and_is_json(explained: Explanation) -> None:
    data = explained.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert set(data) == TOP
    (trace,) = data["traces"]
    assert set(trace) == TRACE and all(set(chunk) == CHUNK for chunk in trace["chunks"])
    assert all(set(one) == SEGMENT for one in data["segments"])
    assert all(set(line) == LINE for line in data["lines"])
    documented = Explanation.to_dict.__doc__ or ""
    names = TRACE | CHUNK | SEGMENT | LINE
    assert all(f"``{name}``" in documented for name in names - {"text"})
    assert all(f"{name}:" in documented for name in TOP)


def test_the_numbers_are_those_of_the_call(explained: Explanation) -> None:
    data = explained.to_dict()
    counts, (trace,) = data["counts"], data["traces"]
    assert counts["operations"] == len(trace["operations"]) >= LAYERS * 6
    assert counts["traces"] == 1 and counts["cuts"] == {"host_read": 1}
    assert counts["chunks"] == len(trace["chunks"]) > 2
    assert sum(len(chunk["operations"]) for chunk in trace["chunks"]) == counts["operations"]
    assert trace["reason"] == "host_read" and trace["runs"] == 1 and trace["planned"]
    assert {chunk["tier"] for chunk in trace["chunks"]} <= {"compiled", "disk", "memory"}
    for chunk in trace["chunks"]:
        assert chunk["bytes_in"] == sum(one["bytes"] for one in chunk["inputs"])
        assert chunk["bytes_out"] == sum(one["bytes"] for one in chunk["outputs"])
        assert chunk["run_seconds"] > 0
    assert any(chunk["donated"] for chunk in trace["chunks"])


def test_the_timeline_is_of_the_call_and_has_every_chunk(explained: Explanation) -> None:
    data = explained.to_dict()
    events = data["timeline"]
    assert {"recording", "planning", "executing", "reading"} <= {e["kind"] for e in events}
    assert {e["kind"] for e in events} <= set(KINDS)
    assert all(e["seconds"] >= 0 and e["start"] >= -1e-9 for e in events)
    assert all(e["start"] + e["seconds"] <= data["seconds"] + 1e-6 for e in events)
    ran = [e["chunk"] for e in events if e["kind"] == "executing"]
    assert ran == [chunk["number"] for chunk in data["traces"][0]["chunks"]]
    one_by_one = [e for e in events if e["kind"] not in ("compiling", "loading")]
    for first, second in zip(one_by_one, one_by_one[1:], strict=False):
        assert second["start"] >= first["start"] + first["seconds"] - 1e-9


def test_repeats_are_folded(explained: Explanation) -> None:
    (trace,) = explained.to_dict()["traces"]
    assert trace["repeats"]
    shown = sum(len(operations) for _, operations in folded(trace))
    total = sum(times * len(operations) for times, operations in folded(trace))
    assert total == len(trace["operations"]) > 3 * shown
    repeat, full = trace["repeats"][0], full_text(explained.to_dict())
    assert f"x{repeat['count']}, {repeat['period']} operations, shown once" in full
    shared = [group for group in groups(trace["chunks"]) if len(group) > 1]
    assert shared and f"(x{len(shared[0])})" in full
    assert f"  0.{shared[0][0]['number']} x{len(shared[0])} " in explained
    for group in shared:
        assert f"plan: chunk {group[1]['number']}:" not in full


def test_the_text_fits_a_screen(explained: Explanation) -> None:
    lines = explained.splitlines()
    assert len(lines) <= SCREEN and max(map(len, lines)) <= WIDTH
    assert "%" not in "".join(line for line in lines if not line.startswith("  "))
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")] == [
        "operations", "traces", "compiles", "cache", "time", "cuts", "host",
        "segments", "chunks", "plan", "lines",
    ]  # fmt: skip


def test_all_of_it_is_printed_on_request(explained: Explanation) -> None:
    (trace,) = explained.to_dict()["traces"]
    full = fuse.explain(layers, full=True)
    assert all(leaf["text"] in full for leaf in trace["leaves"])
    assert (
        trace["operations"][0]["text"] in full and trace["operations"][0]["text"] not in explained
    )
    assert all(len(text(explanation.to_dict())) < len(full) for explanation in (explained, full))


def test_the_lines_of_the_source_share_the_chunks_time(explained: Explanation) -> None:
    data = explained.to_dict()
    ran = sum(chunk["run_seconds"] for chunk in data["traces"][0]["chunks"])
    assert sum(line["seconds"] for line in data["lines"]) == pytest.approx(ran)
    assert sum(line["operations"] for line in data["lines"]) == data["counts"]["operations"]
    first = next(line for line in data["lines"] if "mm" in line["operators"])
    assert first["source"].startswith(__file__)
    assert "test_explain.py:" in explained and "x = (x @ w).tanh().mul(0.812" in explained
    many = data | {"lines": [first] * (LINES + 3)}
    assert longest(many)[-1] == "  and 3 more lines"


def test_what_runs_compiled_by_setting_is_said_to(explained: Explanation) -> None:
    (one,) = explained.to_dict()["segments"]
    assert one["tier"] == "compiled" and one["trace"] == 0 and one["seconds"] is None
    assert one["why"] == "compiled: FUSE_TIER=compiled"
    assert f"  from {one['operator']}, {one['calls']} calls: {one['why']}" in explained


def test_equal_segments_are_said_once(explained: Explanation) -> None:
    one = {"operator": "mm", "calls": 3, "tier": "uncompiled", "seconds": 0.001, "trace": None}
    ran = [one | {"calls": calls, "why": "uncompiled: seen 2 times"} for calls in (3, 5)]
    steady = {"calls": 7, "seconds": 0.5, "settled": False, "why": "it would not pay"}
    assert tier_lines({"segments": ran, "steady": steady}) == [
        "segments    as they run after 7 calls in 500.00 ms: it would not pay",
        "  2 times from mm, 3 to 5 calls in 2.00 ms: uncompiled: seen 2 times",
    ]
    assert tier_lines({"segments": [], "steady": None}) == []


class Checked(HTMLParser):
    """Every element is closed, and none loads anything."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attrs} & {"src", "href", "srcset", "data", "onclick"}
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(html: str) -> set[str]:
    parser = Checked()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    assert not re.search(r"https?:|@import|url\(", html)
    assert not parser.seen & {"script", "link", "img", "iframe", "object"}
    return parser.seen


def test_the_page_loads_nothing_and_has_the_timeline(
    explained: Explanation, tmp_path: Path
) -> None:
    html = explained.save(tmp_path / "step.html").read_text(encoding="utf-8")
    assert html == explained.to_html()
    assert {"svg", "rect", "table", "details"} <= checked(html)
    data = explained.to_dict()
    assert html.count("<rect ") == len(data["timeline"])
    assert "test_explain.py:" in html
    assert f"(x{max(map(len, groups(data['traces'][0]['chunks'])))})" in html


def test_the_page_escapes_what_a_program_says(explained: Explanation) -> None:
    data = json.loads(json.dumps(explained.to_dict()))
    evil = '<script>alert("x")</script>&'
    data["timeline"][0]["label"] = evil
    data["traces"][0]["reason"] = evil
    data["traces"][0]["operations"][0]["source"] = evil
    data["traces"][0]["chunks"][0] |= {"label": evil, "miss": evil, "operations": [evil]}
    html = page(data)
    checked(html)
    assert "&lt;script&gt;" in html


def test_what_was_known_is_said_to_be(explained: Explanation) -> None:
    again = fuse.explain(layers)
    (trace,) = again.to_dict()["traces"]
    assert not trace["planned"] and trace["runs"] >= 2
    assert "planned in this call 0" in again and "planned in this call 1" in explained
    assert f"run {trace['runs']} times so far, planned before this call" in full_text(
        again.to_dict()
    )
    kinds = {event["kind"] for event in again.to_dict()["timeline"]}
    assert not kinds & {"planning", "compiling", "loading"}


def test_what_a_call_returns_is_computed_though_nothing_reads_it() -> None:
    x = torch.ones(3, 3, device="tpu")
    assert fuse.explain(lambda: x @ x + 1).to_dict()["counts"]["chunks"] == 1


def test_an_empty_call_is_explained_too() -> None:
    nothing = fuse.explain(lambda: None)
    assert nothing.to_dict()["traces"] == []
    checked(nothing.to_html())


def test_a_chunk_that_ran_uncompiled_is_said_to(explained: Explanation) -> None:
    data = json.loads(json.dumps(explained.to_dict()))
    data["traces"][0]["chunks"][0]["tier"] = "pending"
    assert "pending, ran uncompiled" in text(data)


def test_recording_is_what_is_left_between_events() -> None:
    events = [
        Event("executing", 2.0, 3.0),
        Event("compiling", 1.0, 2.5),
        Event("reading", 4.0, 5.0),
    ]
    left = [(event.start, event.stop) for event in recording(events, 0.0, 6.0)]
    assert left == [(0.0, 1.0), (3.0, 4.0), (5.0, 6.0)]
    assert recording([Event("planning", 0.0, 1.0)], 0.0, 1.0) == []


@pytest.mark.parametrize(
    ("value", "written"), [(2.5, "2.50 s"), (0.0123, "12.30 ms"), (0.0000421, "42 us")]
)
def test_times_have_readable_units(value: float, written: str) -> None:
    assert seconds(value) == written
