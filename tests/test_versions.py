"""Versions of PyTorch and JAX: too old an error, newer than tested a warning, and on it goes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuse import versions
from fuse.errors import VersionError

ROOT = Path(__file__).parents[1]
PINS = sorted(ROOT.glob("constraints*.txt"))
ANSWER = "\nprint((torch.ones(3, device='tpu') + 1).sum().item())"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What was said is said again, here and by what comes after."""
    versions.check.cache_clear()
    yield
    versions.check.cache_clear()


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code + ANSWER],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("2.13.0+cpu", (2, 13, 0)),
        ("2.16.0.dev20261101", (2, 16, 0)),
        ("2.16.0a0+git12ab", (2, 16, 0)),
        ("0.12.0.1", (0, 12, 0, 1)),
        ("10", (10,)),
        ("unknown", ()),
    ],
)
def test_the_numbers_of_a_version(version: str, numbers: tuple[int, ...]) -> None:
    assert versions.numbers(version) == numbers


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_tested_versions_say_nothing(package: str) -> None:
    oldest, newest = versions.OLDEST[package], versions.NEWEST[package]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for version in (oldest, f"{oldest}.0+cpu", f"{newest}.0", f"{newest}.9+cu132"):
            versions.check(package, version)


@pytest.mark.parametrize(
    ("package", "version"), [("torch", "2.99.1+cpu"), ("torch", "3.0"), ("jax", "1.0.0")]
)
def test_a_newer_version_is_warned_about_once(package: str, version: str) -> None:
    newest = versions.NEWEST[package]
    text = f"{package} {version} is newer than {newest}, the newest that .* pip install '{package}"
    with pytest.warns(versions.VersionWarning, match=re.escape(text).replace(r"\.\*", ".*")):
        versions.check(package, version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        versions.check(package, version)


@pytest.mark.parametrize(
    ("package", "version"), [("torch", "2.10.1+cpu"), ("torch", "1.13.1"), ("jax", "0.9.2")]
)
def test_an_older_version_is_refused_every_time(package: str, version: str) -> None:
    oldest = versions.OLDEST[package]
    for _ in range(2):
        with pytest.raises(VersionError) as caught:
            versions.check(package, version)
        first, hint = str(caught.value).splitlines()
        assert first == f"the tpu device needs {package} {oldest} or newer, and this is {version}."
        assert hint == f"  hint: pip install '{package}>={oldest}'"


def test_the_device_goes_on_with_newer_versions() -> None:
    """What is newer than ``NEWEST`` is what runs: an older ``NEWEST`` is as good for that."""
    found = run(
        "import torch\nfrom fuse import versions\nversions.NEWEST.update(torch='2.10', jax='0.9')"
        "\ntorch.tpu.init()\ntorch.tpu.init()"
    )
    assert (found.returncode, found.stdout) == (0, "6.0\n"), found.stderr
    for package, newest in (("torch", "2.10"), ("jax", "0.9")):
        said = re.findall(rf"VersionWarning: {package} \S+ is newer than {newest},", found.stderr)
        assert len(said) == 1, found.stderr


@pytest.mark.parametrize(("package", "version"), [("torch", "2.10.1"), ("jax", "0.9.2")])
def test_the_devices_first_use_refuses_older_versions(package: str, version: str) -> None:
    found = run(f"import torch, {package}\n{package}.__version__ = {version!r}")
    assert found.returncode == 1
    assert f"VersionError: the tpu device needs {package} {versions.OLDEST[package]}" in (
        found.stderr
    )
    assert found.stdout == ""


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_the_bounds_that_pip_knows_are_the_same(package: str) -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"{package}>={versions.OLDEST[package]}" in wanted


@pytest.mark.parametrize("pins", PINS, ids=lambda path: path.name)
def test_what_is_pinned_is_named_where_the_results_are(pins: Path) -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", pins.read_text(), re.MULTILINE))
    for package in ("torch", "jax"):
        number = versions.numbers(pinned[package])[:2]
        oldest, newest = versions.OLDEST[package], versions.NEWEST[package]
        assert versions.numbers(oldest) <= number <= versions.numbers(newest)
    row = rf"^\| `{re.escape(pins.name)}` \| [\d.]+ \| {re.escape(pinned['torch'])} \| "
    row += rf"{re.escape(pinned['jax'])} \|"
    assert re.search(row, (ROOT / "docs/versions.md").read_text(), re.MULTILINE), row


def test_the_bounds_are_what_is_pinned() -> None:
    for package in ("torch", "jax"):
        pinned = [re.findall(rf"^{package}==(\d+\.\d+)", path.read_text(), re.M) for path in PINS]
        numbers = sorted(versions.numbers(version) for (version,) in pinned)
        assert numbers[0] == versions.numbers(versions.OLDEST[package])
        assert numbers[-1] == versions.numbers(versions.NEWEST[package])
