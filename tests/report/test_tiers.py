"""What ``fuse.stats`` and ``fuse.explain`` say of tiers: the policy's figures in words."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

import fuse
from fuse.engine.timeline import Timeline
from fuse.report import steady
from fuse.report.steady import settle
from fuse.report.tiers import LISTED, tiers
from tests.device.helpers import DEVICE, recorder, run

KIND = {
    "kind": 1, "operator": "addmm", "tier": "uncompiled", "segments": (3, 0),
    "measured_ns": (0, 0), "trials": 0, "entries": (1, 0, 0), "returning": 2, "tried": False,
    "returns": True, "spent_ns": 200_000_000, "price_ns": 1_900_000_000,
}  # fmt: skip
MEASURED = {"trials": 1, "measured_ns": (310_000, 480_000), "segments": (40, 9)}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"segments": (1, 0)}, "uncompiled: seen 1 time"),
        ({}, "uncompiled: seen 3 times"),
        (
            {"segments": (39, 1), "entries": (0, 1, 0)},
            "uncompiled: seen 40 times, is being compiled",
        ),
        (MEASURED, "uncompiled: 0.31 ms a round measured against 0.48 ms compiled"),
        (
            MEASURED | {"tier": "compiled", "measured_ns": (480_000, 310_000)},
            "compiled: 0.31 ms against 0.48 ms uncompiled",
        ),
        (
            MEASURED | {"measured_ns": (99_000, 100_000)},
            "uncompiled: 99 us a round measured against 0.10 ms compiled",
        ),
        (
            {"segments": (9, 1), "tried": True, "entries": (0, 0, 1)},
            "uncompiled: seen 10 times, is being measured against compiled",
        ),
        (
            {"segments": (9, 1), "entries": (0, 0, 1)},
            "uncompiled: seen 10 times, its executables are there to be measured",
        ),
        ({"segments": (9, 0), "returning": 0}, "uncompiled: what follows it keeps changing"),
        (
            {"segments": (9, 5), "returns": False, "entries": (0, 0, 1)},
            "uncompiled: what follows it keeps changing",
        ),
        ({"segments": (9, 0)}, "uncompiled: 0.2 s spent of 1.9 s before compiling pays"),
        (
            {"segments": (9, 0), "spent_ns": 2_000_000_000},
            "uncompiled: seen 9 times, compiling pays, and waits for its share of the time",
        ),
    ],
)  # fmt: skip
def test_each_state_has_its_sentence(changed: dict[str, Any], why: str) -> None:
    (one,) = tiers([KIND | changed], "auto")
    assert one["why"] == why
    assert one["tier"] == why.partition(":")[0]
    assert (one["uncompiled"], one["compiled"]) == (KIND | changed)["segments"]


def test_a_setting_is_the_reason() -> None:
    (one,) = tiers([KIND | MEASURED], "uncompiled")
    assert one["why"] == "uncompiled: FUSE_TIER=uncompiled"
    assert tiers([KIND], "compiled") == []


def test_the_most_frequent_come_first_and_the_list_is_short() -> None:
    kinds = [KIND | {"kind": at, "segments": (at, at)} for at in range(LISTED + 5)]
    found = tiers(kinds, "auto")
    assert [one["compiled"] for one in found] == list(range(LISTED + 4, 4, -1))


def test_the_statistics_count_segments_of_both_tiers() -> None:
    x = torch.ones(3, device=DEVICE)
    with recorder(tier="uncompiled"):
        fuse.reset_stats()
        for _ in range(4):
            x.mul(0.5).add(1).sum().item()
        found = fuse.stats()
        assert found["segments"] == {"uncompiled": 4, "compiled": 0}
        assert found["uncompiled_operations"] == 12
        assert "uncompiled_segments" not in found
    fuse.reset_stats()
    x.mul(0.5).add(1).sum().item()
    assert fuse.stats()["segments"] == {"uncompiled": 0, "compiled": 1}
    assert fuse.stats()["tiers"] == []  # here all is compiled, by setting


class Scripted:
    """A core whose policy's figures are what ``states`` says, one a look."""

    def __init__(self, *states: list[dict[str, Any]]) -> None:
        self._states = list(states)

    def tiers(self) -> list[dict[str, Any]]:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]


def looks(*changes: dict[str, Any]) -> Scripted:
    """A look before the first call, then each change as it is before and after calls."""
    return Scripted([KIND], [KIND], *([KIND | change] for change in changes for _ in range(2)))


def test_it_is_called_until_nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "LOOK_SECONDS", 0.0)
    calls: list[int] = []
    pending = {"segments": (9, 0), "entries": (0, 1, 0)}
    tried = {"segments": (19, 9), "entries": (0, 0, 1), "tried": True}
    core = looks(pending, tried, MEASURED | {"segments": (90, 9)})
    found = settle(core, "auto", lambda: calls.append(1), 30.0)
    assert found["settled"] and found["why"] == "" and found["calls"] == len(calls) >= 3


def test_what_does_not_come_back_is_settled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "LOOK_SECONDS", 0.0)
    found = settle(looks({"segments": (30, 0), "returning": 0}), "auto", lambda: None, 30.0)
    assert found["settled"]
    assert (
        settle(Scripted([KIND]), "auto", lambda: None, 30.0)["calls"] == 1
    )  # runs nothing of them
    assert settle(looks({"segments": (9, 0)}), "uncompiled", lambda: None, 30.0)["calls"] == 1


def test_it_ends_where_compiling_would_not_pay_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(steady, "FORECAST_SECONDS", 0.0)
    slow = {"segments": (9, 0), "spent_ns": KIND["spent_ns"] + 1, "price_ns": 10**15}
    found = settle(looks(slow), "auto", lambda: None, 5.0)
    assert not found["settled"] and found["seconds"] < 5
    assert found["why"] == "compiling what begins with addmm would not pay within 5 s"
    undecided = {"segments": (9, 0), "entries": (0, 0, 1), "spent_ns": 2_000_000_000}
    found = settle(looks(undecided), "auto", lambda: None, 0.0)
    assert found["why"] == "what begins with addmm is not decided after 0 s"


STEP = """
import json
import re
import torch, fuse
x = torch.randn(8, 16).to("tpu")
w = torch.randn(16, 4).to("tpu")
def step():
    return ((x @ w).relu() + 1).square().mean().item()
def tiers(explained):
    data = explained.to_dict()
    return [[one["tier"], one["calls"], one["why"]] for one in data["segments"]]
"""


def test_a_fresh_process_is_told_what_happened_and_why() -> None:
    code = STEP + (
        "found = fuse.explain(step)\n"
        "print(json.dumps([str(found), tiers(found), fuse.stats()['tiers']]))\n"
    )
    text, ran, after = json.loads(run(code, FUSE_TIER="auto", FUSE_CACHE="off"))
    why = "by default it runs uncompiled so far: seen 1 time"
    assert ran == [["compiled", 5, why]]
    assert f"  from mm, 5 calls: {why}" in text and "cuts        host_read 1" in text
    assert "plan\n  chunk 0: the whole trace: 5 operations are within 120" in text
    assert "  compiled in " in text and "pending" not in text
    assert after == [
        {"operator": "mm", "uncompiled": 0, "compiled": 1, "tier": "uncompiled",
         "why": "uncompiled: seen 1 time"}
    ]  # fmt: skip


def test_a_setting_that_keeps_from_compiling_is_said() -> None:
    code = STEP + (
        "print(json.dumps([tiers(fuse.explain(step)), tiers(fuse.explain(step, steady=True))]))\n"
    )
    recorded, as_it_is = json.loads(run(code, FUSE_TIER="uncompiled", FUSE_CACHE="off"))
    assert recorded == [["compiled", 5, "by default it runs uncompiled: FUSE_TIER=uncompiled"]]
    assert as_it_is == [["uncompiled", 5, "uncompiled: FUSE_TIER=uncompiled"]]


def test_the_steady_call_is_described_as_it_runs() -> None:
    code = STEP + (
        "found = fuse.explain(step, steady=True, seconds=300)\n"
        "print(json.dumps([str(found), found.to_dict()['steady'], tiers(found)]))\n"
    )
    text, settled, ((tier, calls, why),) = json.loads(run(code, FUSE_TIER="auto"))
    assert settled["settled"], settled
    assert settled["calls"] > 10 and calls == 5
    assert re.fullmatch(r"(un)?compiled: [0-9.]+ [mu]s .*against [0-9.]+ [mu]s (un)?compiled", why)
    assert f"segments    as they run after {settled['calls']} calls in " in text
    assert ("chunks      numbered" in text) == (tier == "compiled")


def test_what_is_watched_is_no_measure() -> None:
    """Watched segments take longer: the policy learns nothing from them."""
    core, engine = fuse.device.lazy.core(), fuse.device.lazy.engine()
    with recorder(tier="auto"):
        core.watch(2)
        engine.watch(Timeline())
        x = torch.ones(5, device=DEVICE)
        for _ in range(30):
            x.mul(0.5).add(1).sum().item()
        ran = core.watch(0)
        engine.watch(None)
        assert {calls for _, calls, _, _ in ran[1:]} == {3}
        kinds = {kind["kind"]: kind for kind in core.tiers()}
        assert kinds[ran[-1][0]]["spent_ns"] == 0 and kinds[ran[-1][0]]["trials"] == 0
        assert core.watch(0) == []
