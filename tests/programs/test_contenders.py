"""Where the contenders of a benchmark run, by ``DEVICE``."""

from __future__ import annotations

import pytest

from bench import contender


def test_on_the_cpu_each_has_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEVICE", raising=False)
    monkeypatch.setenv("FUSE_AUTOLOAD", "auto")
    assert contender.rival_device() == "cpu"
    assert contender.environment_of("cpu eager")["FUSE_AUTOLOAD"] == "auto"


def test_on_a_gpu_one_accelerator_is_registered_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "gpu")
    assert contender.rival_device() == "cuda"
    for name, ours in (("cuda eager", "0"), ("torch.compile", "0"), ("fused", "1")):
        found = contender.environment_of(name)
        assert found["TORCH_DEVICE_BACKEND_AUTOLOAD"] == found["FUSE_AUTOLOAD"] == ours
        assert found["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_nothing_on_the_cpu_is_taken_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "gpu")
    monkeypatch.setattr("torch.tpu.get_device_name", lambda: "cpu")
    with pytest.raises(RuntimeError, match="JAX found no GPU: fuse doctor"):
        contender._check_platform()
    monkeypatch.setenv("DEVICE", "rocm")
    with pytest.raises(ValueError, match="one of cpu, gpu, and not rocm"):
        contender.rival_device()
