"""transformers' own test class of models on the device: what passes on the CPU passes here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.clients.conftest import Case
from tests.clients.shared_models import MODELS

LIBRARY = "transformers"


def outcomes(name: str, device: str) -> dict[str, str]:
    """What became of each test, in a process of its own: the device is chosen once in one."""
    environment = {**os.environ, "TRANSFORMERS_TEST_DEVICE": device, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tests.clients.shared_tests", name]
    done = subprocess.run(
        command,
        env={**environment, "RUN_SLOW": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["device"] == device
    return dict(found["outcomes"])


@pytest.mark.parametrize("name", MODELS)
def test_shared(case: Case, name: str) -> None:
    """`ModelTesterMixin` with `TRANSFORMERS_TEST_DEVICE=tpu`"""
    device, cpu = outcomes(name, "tpu"), outcomes(name, "cpu")
    passed = [test for test, what in device.items() if what == "passes"]
    case.what += f": {len(passed)} tests pass"
    wrong = {
        test: what
        for test, what in device.items()
        if what != "passes" and what.split(":")[0] != cpu[test].split(":")[0]
    }
    assert not wrong, wrong
