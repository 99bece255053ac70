"""With JAX's plugin for CUDA: what a GPU as a target compiles, refuses, survives, and packs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import torch
from jax.experimental import pallas
from jax.experimental.pallas import triton

import fuse
from bench.programs import PROGRAMS
from fuse.backends.estimates import Variant
from fuse.backends.xla.gpu.devices import MODELS
from fuse.backends.xla.gpu.targets import plugin
from fuse.backends.xla.ranks.programs import Form
from fuse.backends.xla.ranks.step import Joined, Part, Spec
from fuse.backends.xla.targets.names import parse
from fuse.backends.xla.targets.target import XlaTarget
from fuse.engine.targeted import single
from fuse.trace.node import Node
from tests.targets.scripts import check_command, check_setting
from tests.targets.test_attention import Step
from tests.trace.drawing import Drawing

pytestmark = pytest.mark.skipif(
    not plugin("gpu"),
    reason="needs JAX's plugin for CUDA and its libraries, 3 GB: make targets-gpu",
)


@pytest.fixture(scope="module")
def h100() -> Iterator[XlaTarget]:
    target = XlaTarget(parse("h100"))
    yield target
    target.close()


def node(text: str) -> Node:
    return Drawing(text).trace.nodes[0]


def test_a_chunk_compiles_with_its_bytes(h100: XlaTarget) -> None:
    estimate, executable = h100.compile(single(node("c = mul.Tensor(a, b)")))
    assert (estimate.error, estimate.cycles) == ("", 0)
    (cost,) = estimate.costs
    arrays = (*estimate.arguments, *estimate.results)
    given = sum(one.nbytes for one in arrays if "u32" not in one.text)  # without varying numbers
    assert (cost.node, cost.nbytes) == (0, given)
    assert h100.machine.total(estimate) > 0
    assert executable.startswith(b"fuse-xla-")


@pytest.mark.parametrize("name", [*MODELS, "h100:8"])
def test_every_model_compiles(name: str) -> None:
    target = XlaTarget(parse(name))
    estimate, executable = target.compile(single(node("c = mul.Tensor(a, b)")))
    assert (estimate.error, bool(executable)) == ("", True)
    found = target.fingerprint()
    assert found["device kind"] == MODELS[name.partition(":")[0]].full_name
    assert found["platform"] == "gpu"
    assert found["compiler"] == plugin("gpu")
    assert found["device count"] == (name.partition(":")[2] or "1")
    target.close()


def test_a_killed_worker_is_an_error_of_its_chunk_and_the_next_one_compiles() -> None:
    target = XlaTarget(parse("h100"))
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
    target = XlaTarget(parse("h100"), seconds=0.0)
    target.fingerprint()
    (worker,) = target.workers.alive
    os.kill(worker.pid, signal.SIGSTOP)  # it cannot answer before it is looked at
    estimate, _ = target.compile(single(node("c = mul.Tensor(a, b)")))
    assert (estimate.kind, estimate.error) == (
        "time-out",
        "no answer within 0 s of processor time",
    )
    target.close()


def test_a_variant_is_another_peak(h100: XlaTarget) -> None:
    x = torch.randn(64, 64).to("tpu")
    (chunk,) = (
        fuse.compile_for("h100", lambda: (x @ x).cpu(), advice=False)._targeted.plans[-1].chunks
    )
    units = []
    for name in ("highest", "high", "medium"):
        estimate, _ = h100.compile(chunk, Variant(precision=name))
        assert estimate.error == ""
        units.append({cost.unit for cost in estimate.costs if cost.flops})
    assert units == [{"float32"}, {"tfloat32"}, {"tfloat32"}]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_compile_without_the_host(program: object) -> None:
    build: Callable[[str], Callable[[], object]] = program.build  # type: ignore[attr-defined]
    report = fuse.compile_for("h100", build("tpu"), advice=False)
    assert report.failures == []
    assert report.to_dict()["host_calls"] == []
    assert report.cycles is None and report.seconds > 0
    products = [chunk for chunk in report.chunks if "mm" in " ".join(chunk["operations"])]
    assert all(chunk["bound_seconds"]["compute"] > 0 for chunk in products)


def test_bfloat16_is_compared_from_the_h100_on() -> None:
    """The compiler refuses these with subnormal numbers flushed, so they are kept."""
    x = torch.randn(64).to("tpu", torch.bfloat16)
    report = fuse.compile_for("h100", lambda: torch.where(x < 0, x, -x).sort().values.sum().item())
    assert report.failures == []


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_products_and_convolutions_of_integers_compile(dtype: torch.dtype) -> None:
    a = torch.randint(-9, 9, (3, 5)).to("tpu", dtype)
    x, w = (torch.ones(s, dtype=dtype).to("tpu") for s in ((2, 3, 8, 8), (4, 3, 3, 3)))

    def step() -> int:
        return ((a @ a.T).sum() + torch.nn.functional.conv2d(x, w).sum()).item()

    report = fuse.compile_for("h100", step, advice=False)
    assert report.failures == []
    assert report.to_dict()["host_calls"] == []


def test_a_step_of_several_gpus_is_one_program_of_them() -> None:
    chunk = single(node("c = mul.Tensor(a, b)"))
    first, second = (leaf.value for leaf in chunk.inputs)
    (made,) = chunk.outputs
    summed = Form("all_reduce", "sum", -1, 4, 1, (4,), "float32")
    parts = (
        Part(chunk, (first, second), (made,)),
        Part(summed, (made,), (made + 1,), ((4,),)),
    )
    four = Spec((4,), "float32")
    step: Any = Joined(parts, ((first, four), (second, four)), (made + 1,))
    target = XlaTarget(parse("h100:4"))
    estimate, _ = target.compile(step)
    target.close()
    assert estimate.error == ""
    assert len(estimate.costs) > 0  # the product; what goes between GPUs has no figure
    assert any("all-reduce" in name for name in estimate.unestimated)


def test_a_kernel_of_triton_compiles() -> None:
    def doubled(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = x_ref[...] * 2

    @fuse.kernel(name="gputarget::doubled")
    def kernel(x: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        parameters = triton.CompilerParams()
        made: jax.Array = pallas.pallas_call(doubled, out, compiler_params=parameters)(x)
        return made

    x = torch.ones(64, 64).to("tpu")
    report = fuse.compile_for("h100", lambda: kernel(x).sum().item(), advice=False)
    assert report.failures == []
    # Its call has no figure: what a kernel reads and writes is not in the program's text.
    assert any("xla.gpu.triton" in name for name in report.chunks[0]["unestimated"])


def test_the_command_runs_a_script_and_its_pack_is_imported(tmp_path: Path) -> None:
    printed = check_command("h100", tmp_path)
    assert "no GPU ran" in printed
    assert "cycles" not in printed


def test_the_setting_reports_at_the_end(tmp_path: Path) -> None:
    assert "no GPU ran" in check_setting("h100", tmp_path)


@pytest.mark.parametrize("name", ["a100", "h100", "b200"])
def test_attention_is_cudnns_and_holds_no_scores(name: str) -> None:
    """Its kernels are made where the GPU is: what is compiled here is not for a pack."""
    target = XlaTarget(parse(name))
    step = Step(2048)
    found, executable = target.compile(step.chunk())
    target.close()
    assert (found.error, found.unestimated, executable) == ("", {}, b"")
    kernels = [cost for cost in found.costs if cost.opcode == "custom-call"]
    assert [cost.node for cost in kernels] == [0, 1]
    assert found.temporary_bytes < step.scores / 100


def test_a_mask_is_cudnns_too(h100: XlaTarget) -> None:
    step = Step(2048, mask=True)
    found = step.compiled(h100)
    kernels = [cost for cost in found.costs if cost.opcode == "custom-call"]
    assert [cost.node for cost in kernels] == [0, 1]
    # The mask in bfloat16, of one head of eight, twice: made for either kernel.
    assert found.temporary_bytes <= 2 * 2 * 2048 * 2048 + step.scores / 100


def test_attention_of_float32_goes_in_blocks(h100: XlaTarget) -> None:
    step = Step(8192, "float32")
    found = step.compiled(h100)
    assert not [cost for cost in found.costs if "fmha" in cost.name]
    assert found.temporary_bytes < step.scores / 4
