"""GPUs as targets by name, what is published of them, and how the compiler is told of them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

import pytest

import fuse
from fuse.backends.xla.gpu import targets
from fuse.backends.xla.gpu.description import described
from fuse.backends.xla.gpu.devices import MODELS
from fuse.backends.xla.targets import names
from fuse.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "topology"),
    [("a100", "a100:1"), ("h100", "h100:1"), ("h200:8", "h200:8"), ("b200:2", "b200:2")],
)
def test_a_name_is_a_model_and_how_many(name: str, topology: str) -> None:
    found = names.parse(name)
    assert isinstance(found, targets.GpuName)
    assert (found.text, found.topology(), found.kind) == (name, topology, "GPU")


@pytest.mark.parametrize("name", ["h100:0", "h100:9", "h100:16", "h100:4x4", "H100", "h101"])
def test_an_unknown_target_lists_gpus_beside_tpus(name: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)tpu7x, a100, h100, h200, b200.*such as .*h100:8"):
        names.parse(name)


def test_peaks_are_those_without_sparsity_and_agree_with_cores_and_clock() -> None:
    for name, model in MODELS.items():
        machine = model.machine
        assert machine.name == name
        assert not machine.counts_cycles
        assert machine.flops == machine.peaks["bfloat16"]
        assert machine.peaks["tfloat32"] * 2 == pytest.approx(machine.flops, rel=0.01), name
        single = 2 * model.cores * model.core.units * model.clock
        assert machine.peaks["vector"] == pytest.approx(single, rel=0.02), name
        assert machine.source.startswith("https://") and model.sources.startswith("https://")
        # What only TPUs have: advice about it is silent.
        assert (machine.lanes, machine.matrix, machine.emulates) == (0, 0, ())


@pytest.mark.parametrize("name", MODELS)
def test_a_description_has_the_form_of_a_protocol_buffer(name: str) -> None:
    text, model = described(MODELS[name], "13.0.0", "9.10.2"), MODELS[name]
    depth = 0
    for line in text.splitlines():
        assert re.fullmatch(r' *(\w+ \{|\}|\w+: ("[^"]*"|[\w.]+))', line), line
        depth += line.endswith("{") - line.endswith("}")
        assert depth >= 0
    assert depth == 0
    assert f"  core_count: {model.cores}\n" in text
    assert f'device_description_str: "{model.full_name}"\n' in text
    assert "  minor: 10\n  patch: 2\n" in text
    accelerated = name != "a100"
    assert ("feature_extension: ACCELERATED_FEATURES" in text) == accelerated


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = importlib.metadata.version

    def missing(name: str) -> str:
        if name.startswith("jax-cuda"):
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(targets.importlib.metadata, "version", missing)
    targets.plugin.cache_clear()
    yield
    targets.plugin.cache_clear()


def test_without_the_plugin_the_error_says_what_to_install(without: None) -> None:
    with pytest.raises(ConfigError, match=r"pip install 'torch-fuse\[cuda13\]'; no GPU is needed"):
        fuse.compile_for("h100", lambda: None)


def test_the_plugin_of_a_gpus_host_is_part_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"jax-cuda12-pjrt": "0.9", "jax-cuda12-plugin": "0.9", "nvidia-cudnn-cu12": "9.8"}
    monkeypatch.setattr(targets, "_version", lambda package: versions.get(package, ""))
    targets.plugin.cache_clear()
    try:
        assert targets.plugin("gpu") == "jax-cuda12-pjrt 0.9"
        assert targets.plugin("cpu") == targets.plugin("tpu") == ""
        assert (targets.cuda(), targets.cudnn()) == ("12.8.0", "9.8.0")
    finally:
        targets.plugin.cache_clear()
