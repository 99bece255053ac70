"""What can be counted of the programs of ``bench`` is what ``bench/counts.json`` says."""

from __future__ import annotations

import json

import pytest

from bench.counts import BUILDERS, COMMAND, FILE, SETTINGS, differences, versions
from tests.device.helpers import run

STORED = json.loads(FILE.read_text())
LONG = {"decode", "gpt 4M", "lstm"}
"""Programs that take the compiler ten seconds or more."""


def test_every_program_is_in_the_file() -> None:
    assert list(STORED["programs"]) == sorted(BUILDERS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in BUILDERS]
)
def test_nothing_of_a_step_counts_otherwise(name: str) -> None:
    if versions() != STORED["versions"]:
        pytest.skip(f"counted with torch {STORED['versions']['torch']}")
    code = f"import json; from bench.counts import counted; print(json.dumps(counted({name!r})))"
    found = json.loads(run(code, **SETTINGS, FUSE_BACKEND="xla").splitlines()[-1])
    lines = differences(name, STORED["programs"][name], found)
    assert not lines, "\n".join([*lines, f"if that is meant: {COMMAND}"])


def test_what_differs_is_said_with_the_number_and_by_how_much() -> None:
    stored = {"steady step": {"launches": 3, "bytes in": 1000, "cuts": {"host_read": 1}}}
    found = {"steady step": {"launches": 4, "bytes in": 1000, "cuts": {"collective": 1}}, "new": 2}
    assert differences("mlp", stored, found) == [
        "mlp, steady step, launches: 4 instead of 3 (+1)",
        "mlp, steady step, cuts, host_read: 0 instead of 1 (-1)",
        "mlp, steady step, cuts, collective: 1 instead of 0 (+1)",
        "mlp, new: 2 instead of 0 (+2)",
    ]
    assert differences("mlp", stored, stored) == []
