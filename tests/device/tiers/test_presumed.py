"""Calls taken before their rules are traced, and what becomes of those that the rules refuse."""

from __future__ import annotations

import json
from typing import Any

import torch

from fuse.backends.registry import get_backend
from fuse.backends.xla.rules.registry import MAY_REFUSE, RULES
from tests.device.helpers import run
from tests.engine.fakes import chunk
from tests.lanes import only_in

pytestmark = only_in("compiled", reason="each runs programs with settings of its own")

# A rule that nobody said may refuse: of rows of five it cannot be had, which workers do not know.
PROGRAM = """
import json, threading, time, warnings, torch, fuse
from fuse.backends.xla.rules.registry import RULES, Unsupported
from fuse.device import lazy
torch.tpu.init()
backend = type(lazy.engine().backend)
backend.workers = lambda self: None
whole, traced = RULES["hardswish"], []
def refusing(context, x):
    if threading.current_thread() is threading.main_thread():
        traced.append(x.shape)
    if x.shape[-1] == 5:
        raise Unsupported("rows of five")
    return whole(context, x)
RULES["hardswish"] = refusing
lazy.core().set_tier(1)  # recorded at once
TAIL
x = torch.linspace(-4, 4, 15).view(3, 5)
expected = torch.nn.functional.hardswish(x * 2).sum(0)
warned = []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    d = x.to("tpu")
    torch.nn.functional.hardswish(d[:, :4] * 2).cpu()  # of this kind the rule takes some
    traced.clear()
    asked = None
    for step in range(400):
        found = torch.nn.functional.hardswish(d * 2).sum(0).cpu()
        torch.testing.assert_close(found, expected)
        asked = len(traced) if asked is None else asked
        stats = fuse.stats()
        if stats["host_fallbacks"].get("hardswish", 0) > 3:
            break
        time.sleep(0.01)
    small = torch.nn.functional.hardswish(d[:, :4]).cpu()
    torch.testing.assert_close(small, torch.nn.functional.hardswish(x[:, :4]))
print(json.dumps({
    "asked": asked, "fallbacks": stats["host_fallbacks"],
    "warned": [f"{one.category.__name__}: {one.message}" for one in caught],
}))
"""
LACKING = """
from fuse.engine import compiler, uncompiled
compiler.lack = lambda node: "nothing" if node.target == "sum.dim_IntList" else None
uncompiled.lack = compiler.lack
"""


def outcome(tail: str = "", **settings: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(PROGRAM.replace("TAIL", tail), **settings))
    return found


def test_what_turns_out_to_be_refused_runs_on_the_host() -> None:
    found = outcome(FUSE_TIER="auto", FUSE_CACHE="off")
    assert found["asked"] == 0
    assert found["fallbacks"]["hardswish"] > 3
    (warned,) = found["warned"]
    assert warned.startswith("HostFallbackWarning: aten::hardswish runs on the host (rows of five)")
    assert "first at" in warned and "unknown line" not in warned


def test_it_does_so_where_the_chunk_was_waited_for() -> None:
    found = outcome(LACKING, FUSE_TIER="auto", FUSE_CACHE="off")
    assert found["asked"] > 0
    assert found["fallbacks"]["hardswish"] > 3
    assert any("(rows of five)" in text for text in found["warned"])


def test_where_executables_are_waited_for_it_is_asked_at_the_call() -> None:
    found = outcome(FUSE_TIER="compiled", FUSE_CACHE="off")
    assert found["asked"] > 0
    assert found["fallbacks"]["hardswish"] > 3
    (warned,) = found["warned"]
    assert "rows of five" in warned


def test_so_does_what_was_presumed_after_a_few_of_its_kind() -> None:
    tail = """
for columns in (2, 3, 4, 6):
    torch.nn.functional.hardswish(torch.ones(3, columns, device="tpu") * 2).cpu()
assert len(traced) == 2 * 3 + 1, traced  # the last one by its compile alone
"""
    found = outcome(tail, FUSE_TIER="compiled", FUSE_CACHE="off")
    assert found["fallbacks"]["hardswish"] > 3
    assert any("(rows of five)" in text for text in found["warned"])


def test_a_fallback_that_is_an_error_is_one_at_the_call() -> None:
    program = PROGRAM.replace("TAIL", "").partition("warned = []")[0]
    program += """
try:
    torch.nn.functional.hardswish(x.to("tpu"))
except NotImplementedError as error:
    print(json.dumps({"said": str(error)}))
"""
    settings = {"FUSE_TIER": "auto", "FUSE_HOST_FALLBACK": "error", "FUSE_CACHE": "off"}
    assert "rows of five" in json.loads(run(program, **settings))["said"]


def test_operators_that_may_refuse_have_rules() -> None:
    torch.tpu.init()
    assert set(MAY_REFUSE) <= set(RULES)


def test_backends_presume_nothing_unless_they_say_so() -> None:
    node = chunk().nodes[0]
    assert not get_backend("numpy").presumes(node)
    assert get_backend("xla").presumes(node)
