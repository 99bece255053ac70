"""What ``fuse doctor`` says of an NVIDIA GPU: whether driver, plugin and libraries fit each other.

Starts neither JAX nor CUDA: what does not fit is what keeps them from starting.
"""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path
from typing import Final

from fuse.commands.finding import Finding
from fuse.versions import DISTRIBUTION, numbers

DRIVER: Final = Path("/proc/driver/nvidia/version")
"""Where NVIDIA's kernel module says its version; there is no such file without it."""
MAJORS: Final = ("13", "12")
"""Versions of CUDA that JAX has a plugin for, newest first."""
OLDEST_DRIVER: Final = {"13": "580.65", "12": "525.60"}
"""By the table of minor version compatibility in the release notes of the CUDA toolkit."""
OLDEST_CUDNN: Final = "9.8"
"""What JAX 0.10 asks of an installation: https://docs.jax.dev/en/latest/installation.html"""
_CPU_ONLY: Final = "cpu"


def gpu() -> list[Finding]:
    """Driver, plugin, cuDNN and the variables that hide a GPU; nothing where neither is here."""
    driver, majors = _driver(), [major for major in MAJORS if _version(f"jax-cuda{major}-plugin")]
    if driver is None and not majors:
        return []
    findings = [_found(driver, majors)]
    if len(majors) > 1:
        value = "JAX's plugins for CUDA 12 and 13 are both installed, and each would be started"
        hint = "pip uninstall jax-cuda12-plugin jax-cuda12-pjrt"
        findings.append(Finding("GPU plugin", value, False, hint))
    for major in majors:
        findings += [_plugin(major), _cudnn(major)]
        if driver is not None:
            findings.append(_fit(driver, major))
    return findings + (_hidden() if driver is not None else [])


def _driver() -> str | None:
    """The version of the kernel module, such as ``580.65.06``; empty where it is not understood."""
    try:
        text = DRIVER.read_text()
    except OSError:
        return None
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _found(driver: str | None, majors: list[str]) -> Finding:
    if driver is None:
        value = "no NVIDIA driver here: JAX's plugin compiles for GPUs, and finds none"
        return Finding("GPU driver", value)
    if not majors:
        new = driver and numbers(driver) >= numbers(OLDEST_DRIVER["13"])
        hint = f"pip install '{DISTRIBUTION}[{'cuda13' if new else 'cuda'}]'"
        value = f"{driver}, and JAX has no plugin for CUDA: programs run on the CPU"
        return Finding("GPU driver", value, os.environ.get("JAX_PLATFORMS") == _CPU_ONLY, hint)
    return Finding("GPU driver", driver or "of an unknown version")


def _fit(driver: str, major: str) -> Finding:
    wanted = OLDEST_DRIVER[major]
    if not driver or numbers(driver) >= numbers(wanted):
        return Finding("GPU CUDA", f"{major}, for drivers from {wanted} on")
    other = " or install the plugin for CUDA 12" if major == "13" else ""
    value = f"CUDA {major} needs a driver from {wanted} on, and this one is {driver}"
    return Finding("GPU CUDA", value, False, f"install a newer driver{other}")


def _plugin(major: str) -> Finding:
    """The plugin is two packages, of jaxlib's own version."""
    names = (f"jax-cuda{major}-plugin", f"jax-cuda{major}-pjrt", "jaxlib")
    versions = [_version(name) for name in names]
    if len(set(versions)) == 1:
        return Finding("GPU plugin", f"{names[0]} {versions[0]}")
    each = ", ".join(
        f"{name} {version or 'missing'}" for name, version in zip(names, versions, strict=True)
    )
    hint = f"pip install 'jax[cuda{major}]=={_version('jax')}'"
    return Finding("GPU plugin", f"{each}: JAX starts none that is not its own", False, hint)


def _cudnn(major: str) -> Finding:
    version = _version(f"nvidia-cudnn-cu{major}")
    if not version:
        return Finding("GPU cuDNN", "not installed by pip: JAX looks for the system's")
    ok = numbers(version) >= numbers(OLDEST_CUDNN)
    value = version if ok else f"{version}, and JAX needs {OLDEST_CUDNN} or newer"
    return Finding("GPU cuDNN", value, ok, f"pip install -U nvidia-cudnn-cu{major}")


def _hidden() -> list[Finding]:
    """Variables of the environment that keep JAX from a GPU that is there."""
    found = []
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        none = shown.strip() in ("", "-1")
        value = (
            "CUDA_VISIBLE_DEVICES hides every GPU"
            if none
            else f"those of CUDA_VISIBLE_DEVICES={shown}"
        )
        found.append(Finding("GPUs shown", value, not none, "unset CUDA_VISIBLE_DEVICES"))
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        value = f"JAX_PLATFORMS={platforms} keeps JAX from the GPU"
        found.append(Finding("GPU platform", value, False, "unset JAX_PLATFORMS"))
    return found
