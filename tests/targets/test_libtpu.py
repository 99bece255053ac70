"""With the TPU's own compiler: what a target compiles, refuses, survives, and packs."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fuse
from fuse.backends.estimates import Variant
from fuse.backends.xla.targets.names import parse
from fuse.backends.xla.targets.target import XlaTarget
from fuse.device import lazy
from fuse.engine.executables import surroundings
from fuse.engine.targeted import single
from fuse.errors import ConfigError
from fuse.trace.node import Node
from tests.targets.scripts import check_command, check_setting
from tests.trace.drawing import Drawing

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="needs libtpu, the TPU's compiler, 0.7 GB: pip install 'torch-fuse[tpu]'",
)


@pytest.fixture(scope="module")
def v5e() -> Iterator[XlaTarget]:
    target = XlaTarget(parse("v5e"))
    yield target
    target.close()


def node(text: str) -> Node:
    return Drawing(text).trace.nodes[0]


def test_a_chunk_compiles_with_an_estimate(v5e: XlaTarget) -> None:
    estimate, executable = v5e.compile(single(node("c = mul.Tensor(a, b)")))
    assert estimate.error == ""
    assert estimate.cycles > 0
    assert estimate.costs[0].node == 0
    assert len(estimate.results) == 1
    assert executable.startswith(b"fuse-xla-")


@pytest.mark.parametrize("name", ["v4", "v5p", "v6e", "tpu7x", "v5e:4x4"])
def test_every_generation_compiles(name: str) -> None:
    target = XlaTarget(parse(name))
    estimate, executable = target.compile(single(node("c = mul.Tensor(a, b)")))
    assert (estimate.error, estimate.cycles > 0, bool(executable)) == ("", True, True)
    assert target.fingerprint()["device kind"].startswith("TPU")
    target.close()


def test_keys_are_those_of_a_host_of_the_target(v5e: XlaTarget) -> None:
    """What a v5e host says of itself, field by field, in libtpu's own words."""
    found = v5e.fingerprint()
    assert found["platform"] == "tpu"
    assert found["device kind"] == "TPU v5 lite"
    assert found["compiler"].startswith("PJRT C API\nTFRT TPU v5 lite\nBuilt on ")
    assert "device count" not in found
    fields = surroundings(v5e)
    assert fields["torch"] == torch.__version__.partition("+")[0]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert v5e.fingerprint() != found
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_killed_worker_is_an_error_of_its_chunk_and_the_next_one_compiles() -> None:
    target = XlaTarget(parse("v5e"))
    target.fingerprint()
    (worker,) = target.workers.alive
    os.kill(worker.pid, signal.SIGKILL)
    one = single(node("c = mul.Tensor(a, b)"))
    estimate, executable = target.compile(one)
    assert (estimate.kind, executable) == ("aborted", b"")
    assert "signal 9" in estimate.error
    assert target.compile(one)[0].error == ""
    target.close()
    assert not target.workers.alive


def test_a_compiler_that_takes_too_long_is_ended() -> None:
    target = XlaTarget(parse("v5e"), seconds=0.0)
    target.fingerprint()
    (worker,) = target.workers.alive
    os.kill(worker.pid, signal.SIGSTOP)  # it cannot answer before it is looked at
    estimate, _ = target.compile(single(node("c = mul.Tensor(a, b)")))
    assert estimate.kind == "time-out"
    assert estimate.error == "no answer within 0 s of processor time"
    target.close()


def test_a_topology_that_the_compiler_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown target 'v5e:3x7'.*known ones are v4"):
        XlaTarget(parse("v5e:3x7")).fingerprint()


def test_products_of_64_bit_integers_compile() -> None:
    a = torch.randint(-(2**62), 2**62, (3, 5)).to("tpu")
    report = fuse.compile_for("v5e", lambda: (a @ a.T).sum().item(), advice=False)
    assert report.failures == []


@pytest.mark.parametrize("name", ["v5e", "v6e"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_singular_values_vectors_and_pseudo_inverses_compile(name: str, dtype: torch.dtype) -> None:
    def step() -> float:
        square, batch = torch.eye(4, dtype=dtype), torch.ones(2, 3, 5, dtype=dtype)
        u, s, vh = torch.linalg.svd(square.to("tpu"))
        tall = torch.linalg.svd(batch.to("tpu").mT, full_matrices=True)[0]
        values = torch.linalg.svdvals(batch.to("tpu"))
        inverse = torch.linalg.pinv(batch.to("tpu"))
        parts = [u, s, vh, tall, values, inverse]
        return sum(part.abs().sum() for part in parts).item()

    report = fuse.compile_for(name, step, advice=False)
    assert report.failures == []
    assert report.to_dict()["host_calls"] == []


def test_three_tensors_of_64_bit_integers_compile() -> None:
    operands = [torch.ones(shape, dtype=torch.int64).to("tpu") for shape in ((2, 3), (4, 3, 5))]
    second = torch.ones(2, 5, dtype=torch.int64).to("tpu")
    bilinear = torch.nn.functional.bilinear
    report = fuse.compile_for(
        "v5e", lambda: bilinear(operands[0], second, operands[1]).sum().item(), advice=False
    )
    assert report.failures == []
    assert report.to_dict()["host_calls"] == []


def test_linear_algebra_of_float64_is_refused_at_the_call() -> None:
    a = torch.eye(3, dtype=torch.float64)

    def step() -> float:
        x = a.to("tpu")
        return (torch.linalg.solve(x, x) + torch.linalg.eigh(x)[1]).sum().item()

    with pytest.warns(UserWarning, match="a TPU has no .* of float64"):
        report = fuse.compile_for("v5e", step, advice=False)
    assert report.failures == []
    reasons = {call["reason"] for call in report.to_dict()["host_calls"]}
    assert reasons == {"a TPU has no LU factors of float64", "a TPU has no eigenvectors of float64"}


def test_orders_and_signs_of_float64_compile() -> None:
    """They are made of its bits."""
    x = torch.tensor([[3.0, -0.0, -2.5], [1.0, 7.0, 4.0]], dtype=torch.float64).to("tpu")

    def step() -> float:
        parts = [x.sort().values, x.topk(2).values, x.log2(), torch.frexp(x)[0], x.signbit()]
        return sum(part.sum() for part in parts).item()

    report = fuse.compile_for("v5e", step, advice=False)
    assert report.failures == []
    assert report.to_dict()["host_calls"] == []


def test_complex128_is_refused_at_the_call(v5e: XlaTarget) -> None:
    x = torch.ones(3, dtype=torch.complex128)
    with pytest.warns(UserWarning, match="complex128"):
        report = fuse.compile_for("v5e", lambda: (x.to("tpu") * 2).abs().sum().item(), advice=False)
    assert report.failures == []
    assert report.to_dict()["host_calls"]


def test_the_gain_of_wider_heads_is_that_of_the_model_changed_by_hand() -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    x = torch.randn(2, 256, 256).to("tpu", torch.bfloat16)

    def attention(heads: int) -> float:
        q = x.view(2, 256, heads, -1).transpose(1, 2)
        y = attend(q, q, q, is_causal=True)
        return y.transpose(1, 2).reshape(2, 256, 256).float().sum().item()

    narrow = fuse.compile_for("v5e", lambda: attention(4))
    (found,) = [one for one in narrow.advice if "heads of 64" in one["what"]]
    wide = fuse.compile_for("v5e", lambda: attention(2), advice=False)
    assert found["cycles_before"] == narrow.cycles > wide.cycles
    assert found["cycles_after"] == pytest.approx(wide.cycles, rel=0.02)


def test_a_variant_is_no_entry_of_a_pack(v5e: XlaTarget) -> None:
    one = single(node("c = mul.Tensor(a, b)"))
    assert v5e.compile(one, Variant(precision="medium"))[0].error == ""


def test_the_command_runs_a_script_and_its_pack_is_imported(tmp_path: Path) -> None:
    printed = check_command("v5e", tmp_path)
    assert "no TPU ran" in printed


def test_the_setting_reports_at_the_end(tmp_path: Path) -> None:
    assert "no TPU ran" in check_setting("v5e", tmp_path)
    assert lazy.engine().targeted is None
