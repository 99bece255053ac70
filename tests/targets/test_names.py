"""Targets by name, what is published of them, and the errors about those that there are not."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import fuse
from fuse import config
from fuse.backends.registry import get_backend
from fuse.backends.xla.targets import names
from fuse.backends.xla.tpu import targets
from fuse.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "topology", "one"),
    [
        ("v4", "v4:1x1x1", True),
        ("v5e", "v5e:1x1", True),
        ("v5p", "v5p:1x1x1", True),
        ("v6e", "v6e:1x1", True),
        ("tpu7x", "tpu7x:1x1x1", True),
        ("v5e:4x4", "v5e:4x4", False),
        ("v5p:2x2x4", "v5p:2x2x4", False),
    ],
)
def test_a_name_is_a_topology(name: str, topology: str, one: bool) -> None:
    found = targets.find(name)
    assert found is not None
    assert (found.topology(), found.one_chip, found.text) == (topology, one, name)


@pytest.mark.parametrize("name", ["v9", "", "v5e:", "v5e:4", "v5e:4x4x4x4", "V5E", "v5e 4x4"])
def test_an_unknown_target_lists_the_known(name: str) -> None:
    with pytest.raises(ConfigError, match="the known ones are v4, v5e, v5p, v6e, tpu7x"):
        names.parse(name)


def test_peaks_are_per_device_and_give_a_clock_that_a_chip_can_have() -> None:
    for name, generation in targets.GENERATIONS.items():
        machine = generation.machine
        assert machine.name == name
        assert 0.9e9 < machine.clock < 2.5e9, name
        assert 100 < machine.flops / machine.bandwidth < 800, name
        assert machine.source.startswith("https://"), name


def test_without_libtpu_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.version

    def missing(name: str) -> str:
        if name == "libtpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(targets.importlib.metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"pip install 'torch-fuse\[tpu\]'; no TPU is needed"):
        fuse.compile_for("v5e", lambda: None)


def test_a_backend_without_targets_says_so() -> None:
    with pytest.raises(ConfigError, match="the numpy backend compiles for no target, so not for"):
        get_backend("numpy").target("v5e")


def test_the_setting_names_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_TARGET", "v6e")
    assert config.target() == "v6e"
    monkeypatch.setenv("FUSE_TARGET", "")
    assert config.target() is None


def test_the_command_says_what_is_wrong_and_ends() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "fuse.commands.cli", "aot", "--target", "v9", "nothing.py"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert found.returncode == 2
    assert "unknown target 'v9': the known ones are v4" in found.stderr
    assert "Traceback" not in found.stderr
