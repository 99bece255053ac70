"""``fuse doctor`` of an NVIDIA GPU: what does not fit is said in a sentence, with what to do."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from fuse.commands import doctor, doctor_gpu
from fuse.commands.finding import Finding

VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\nGCC version: 12\n"
)
FITTING = {
    "jax": "0.10.2",
    "jaxlib": "0.10.2",
    "jax-cuda13-plugin": "0.10.2",
    "jax-cuda13-pjrt": "0.10.2",
    "nvidia-cudnn-cu13": "9.28.1.4",
}


class Machine:
    """One with a driver and packages of these versions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.set, self.file, self.packages = monkeypatch.setenv, folder / "version", dict(FITTING)
        monkeypatch.setattr(doctor_gpu, "DRIVER", self.file)
        monkeypatch.setattr(doctor_gpu.metadata, "version", self.version)
        for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"):
            monkeypatch.delenv(name, raising=False)

    def version(self, package: str) -> str:
        if package not in self.packages:
            raise metadata.PackageNotFoundError(package)
        return self.packages[package]

    def driver(self, version: str) -> None:
        self.file.write_text(VERSION.format(version))

    def bad(self) -> list[Finding]:
        return [finding for finding in doctor_gpu.gpu() if not finding.ok]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def said(findings: list[Finding]) -> str:
    (one,) = findings
    return f"{one.value} | {one.hint}"


def test_what_fits_is_listed(machine: Machine) -> None:
    machine.driver("580.65.06")
    machine.set("CUDA_VISIBLE_DEVICES", "1")
    assert not machine.bad()
    assert [(one.what, one.value) for one in doctor_gpu.gpu()] == [
        ("GPU driver", "580.65.06"),
        ("GPU plugin", "jax-cuda13-plugin 0.10.2"),
        ("GPU cuDNN", "9.28.1.4"),
        ("GPU CUDA", "13, for drivers from 580.65 on"),
        ("GPUs shown", "those of CUDA_VISIBLE_DEVICES=1"),
    ]
    assert doctor_gpu.gpu in doctor.CHECKS


def test_without_a_gpu_and_its_plugin_nothing_is_said(machine: Machine) -> None:
    machine.packages = {"jaxlib": "0.10.2"}
    assert doctor_gpu.gpu() == []


def test_a_plugin_alone_is_for_targets(machine: Machine) -> None:
    assert not machine.bad()
    assert "finds none" in doctor_gpu.gpu()[0].value


def test_a_gpu_without_a_plugin_is_not_used(machine: Machine) -> None:
    machine.packages = {"jaxlib": "0.10.2"}
    for driver, extra in (("590.1", "cuda13"), ("550.54.15", "cuda")):
        machine.driver(driver)
        text = said(machine.bad())
        assert "programs run on the CPU" in text and f"torch-fuse[{extra}]" in text
    machine.set("JAX_PLATFORMS", "cpu")
    assert [one.what for one in machine.bad()] == ["GPU platform"]


def test_an_old_driver(machine: Machine) -> None:
    machine.driver("550.54.15")
    assert said(machine.bad()) == (
        "CUDA 13 needs a driver from 580.65 on, and this one is 550.54.15 | "
        "install a newer driver or install the plugin for CUDA 12"
    )


def test_a_driver_that_says_no_version_is_taken_for_new(machine: Machine) -> None:
    machine.file.write_text("NVRM version: none\n")
    assert not machine.bad()


def test_a_plugin_of_another_jaxlib_and_half_of_one(machine: Machine) -> None:
    machine.driver("580.65.06")
    machine.packages["jax-cuda13-pjrt"] = "0.10.1"
    text = said(machine.bad())
    assert "jax-cuda13-pjrt 0.10.1, jaxlib 0.10.2" in text and "jax[cuda13]==0.10.2" in text
    del machine.packages["jax-cuda13-pjrt"]
    assert "jax-cuda13-pjrt missing" in said(machine.bad())


def test_two_plugins(machine: Machine) -> None:
    machine.driver("580.65.06")
    machine.packages |= {"jax-cuda12-plugin": "0.10.2", "jax-cuda12-pjrt": "0.10.2"}
    assert "12 and 13 are both installed" in said(machine.bad())


def test_an_old_cudnn_and_one_of_the_system(machine: Machine) -> None:
    machine.driver("580.65.06")
    machine.packages["nvidia-cudnn-cu13"] = "9.1.0.70"
    assert "9.1.0.70, and JAX needs 9.8" in said(machine.bad())
    del machine.packages["nvidia-cudnn-cu13"]
    assert not machine.bad()


@pytest.mark.parametrize(
    ("name", "value"),
    [("CUDA_VISIBLE_DEVICES", ""), ("CUDA_VISIBLE_DEVICES", "-1"), ("JAX_PLATFORMS", "cpu")],
)
def test_a_variable_that_hides_the_gpu(name: str, value: str, machine: Machine) -> None:
    machine.driver("580.65.06")
    machine.set(name, value)
    text = said(machine.bad())
    assert name in text and f"unset {name}" in text
