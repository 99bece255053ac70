"""Random programs agree with the CPU: some in every mode, more of them under other settings.

``tests/fuzz/campaign.py`` goes on for as long as one likes. What it found stands in ``FOUND``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import fuse
from fuse.backends.xla.backend import create
from tests.fuzz.campaign import check, programs
from tests.fuzz.program import Program, Step


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(program=programs())
def test_a_random_program_gives_the_cpus_results(
    mode: str, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    check(program)


def steps(*kinds: str | tuple[str, int]) -> Program:
    """A program of steps of the first tensor, or of the one that is given."""
    pairs = [(kind, 0) if isinstance(kind, str) else kind for kind in kinds]
    return Program(tuple(Step(k, at, 0, 0, False, False) for k, at in pairs), False, False)


FOUND = {
    "relu_ of complex numbers": steps("complex", ("relu_", 4)),
    "round of complex numbers": steps("complex", ("rounded", 4)),
    "maximum of complex numbers": steps("complex", ("maximum", 4)),
    "softmax of integers": steps(("softmax", 3)),
    "linear of booleans": steps("compare", ("linear", 4)),
    "argmax of complex numbers": steps("complex", ("argmax", 4)),
    "argmax of nothing": steps("empty", ("argmax", 4)),
    "maximum of nothing": steps("empty", ("max", 4)),
    "data of a view without history": steps("chunk", "add_", ("set data", 4)),
    "negative of booleans": steps("compare", ("neg", 4)),
    "index_fill_ of nothing": steps("empty", ("cat", 4), ("index_fill_", 5)),
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("backend", ["xla", "numpy"])
def test_what_was_found(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    before = fuse.get_backend()
    fuse.set_backend(backend)
    try:
        check(FOUND[name])
    finally:
        fuse.set_backend(before)


IN_BACKGROUND = {"FUSE_TIER": "auto"}
SETTINGS: dict[str, tuple[list[str], dict[str, str]]] = {
    "as users have it": ([], IN_BACKGROUND),
    "uncompiled": ([], {"FUSE_TIER": "uncompiled"}),
    "not ahead, short traces": (["--no-ahead"], {"FUSE_MAX_OPERATIONS": "3"}),
    "small chunks": (["--whole", "2"], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings(name: str) -> None:
    options, environment = SETTINGS[name]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.campaign", "--programs", "100", "--seed", "7", *options],
        capture_output=True,
        text=True,
        timeout=550,
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    create().platform.name != "cpu", reason="executables of other platforms are not in this memory"
)
def test_memory_stays_within_its_bound(tmp_path: Path) -> None:
    """Each program is compiled, a thousand executables in all, of 0.2 to 2.5 MB each."""
    bound = 64_000_000
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.memory", "300"],
        capture_output=True,
        text=True,
        timeout=1100,
        env=os.environ
        | IN_BACKGROUND
        | {"FUSE_CACHE_ENTRIES": "128", "FUSE_CACHE_BYTES": str(bound)}
        | {"FUSE_CACHE_DIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sooner, *_, later = map(json.loads, done.stdout.splitlines())
    assert later["compiles"] > 600 and later["prunes"] > sooner["prunes"] > 1
    assert later["megabytes"] - sooner["megabytes"] <= 1.1 * bound / 1e6


@pytest.mark.slow
def test_threads_that_serve_random_shapes() -> None:
    """Right, which the server asserts itself, and bounded: shapes that change are not compiled."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.serving", "600"],
        capture_output=True,
        text=True,
        timeout=550,
        env=os.environ | IN_BACKGROUND,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["requests"] == 600 and figures["shapes"] > 200
    assert figures["compiles"] < 50
    sooner, later = figures["megabytes"]
    # The few executables that are made take 3 MB each, 74 MB for 22; without any, 6,000 requests
    # take 2 MB. One for every shape would be several hundred.
    assert later < sooner + 120
