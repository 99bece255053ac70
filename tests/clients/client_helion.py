"""Helion's Pallas backend, which launches by private names of TorchTPU: here those of the shim."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import fuse
from fuse.torch_tpu import shim
from tests.clients.conftest import Case, timed

LIBRARY = "helion"
CALLS = 100


@pytest.fixture(autouse=True, scope="module")
def asked() -> Iterator[None]:
    """Helion reads its settings where a kernel is first called."""
    with pytest.MonkeyPatch.context() as patch, shim.installed():
        patch.setenv("HELION_BACKEND", "pallas")
        patch.setenv("HELION_AUTOTUNE_EFFORT", "none")
        yield


def known(name: str) -> Any:
    # After the settings: Helion reads some of them when it is imported.
    return importlib.import_module("tests.clients.helion_kernels").KERNELS[name]


NAMES = (
    "add",
    "multiply, in place",
    "softmax",
    "softmax, in two passes",
    "matmul",
    "matmul, bfloat16",
    "matmul, bias and relu",
    "attention",
)


@pytest.mark.parametrize("name", NAMES)
def test_kernels(case: Case, name: str) -> None:
    """A kernel by `HELION_BACKEND=pallas` and the shim, called a hundred times."""
    one = known(name)

    def run(device: str) -> list[tuple[float, Any]]:
        given = [tensor.to(device) for tensor in one.arguments]
        call = one.wanted if device == "cpu" else one.kernel
        return [timed(lambda: (call(*given).cpu(),)) for _ in range(CALLS)]

    device, cpu = case.compare(run)
    near = {"rtol": 2e-2, "atol": 1e-1} if "bfloat16" in name else {"rtol": 1e-4, "atol": 1e-4}
    for at in (0, 5, CALLS - 1):
        torch.testing.assert_close(device[at], cpu[at], **near)
    assert case.fallbacks == "0"


def test_a_kernel_is_one_operation_of_a_chunk(case: Case) -> None:
    """A kernel between operations of PyTorch's is part of their executable."""
    one = known("softmax")
    x = one.arguments[0].to("tpu")

    def step() -> torch.Tensor:
        return (one.kernel(x * 2) + 1).sum(0)

    for _ in range(6):
        step().cpu()
    counts = fuse.explain(lambda: step().cpu()).to_dict()["counts"]
    assert (counts["chunks"], counts["operations"]) == (1, 4), counts
    torch.testing.assert_close(step().cpu(), (one.wanted(one.arguments[0] * 2) + 1).sum(0))


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs libtpu: pip install jax[tpu]"
)
@pytest.mark.parametrize("target", ["v5e", "v6e"])
@pytest.mark.parametrize("name", NAMES)
def test_targets(case: Case, name: str, target: str) -> None:
    """A kernel compiles for a TPU that is not here."""
    one = known(name)
    given = [tensor.to("tpu") for tensor in one.arguments]
    report = fuse.compile_for(target, lambda: one.kernel(*given).sum().item())
    assert report.failures == []


def test_the_shim_is_there_while_it_is_asked_for_alone() -> None:
    assert "torch_tpu" in sys.modules
    shim.remove()
    assert importlib.util.find_spec("torch_tpu") is None
    shim.install()
