from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from tests.clients import ranks
from tests.clients.conftest import Case, timed

LIBRARY = "accelerate"
PROGRAM = """
import torch
from accelerate import Accelerator
accelerator = Accelerator({arguments})
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 2))
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for epoch in range(3):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
accelerator.wait_for_everyone()
report(accelerator.num_processes, accelerator.device.type, losses)
accelerator.end_training()
"""
CHECKS = """
from accelerate import Accelerator
from accelerate.test_utils.scripts import test_script as script
from accelerate.utils import synchronize_rng_states
device = Accelerator().device.type
script.process_execution_check()
script.test_split_between_processes_list()
script.test_split_between_processes_nested_dict()
script.test_split_between_processes_tensor()
script.test_split_between_processes_evenly()
synchronize_rng_states(["torch"])
script.dl_preparation_check()
script.central_dl_preparation_check()
script.custom_sampler_check()
script.check_seedable_sampler()
script.check_seedable_sampler_with_data_seed()
script.check_seedable_sampler_in_batch_sampler_shard()
script.test_trigger()
try:
    script.training_check(use_seedable_sampler=True)
except ValueError as error:
    report(device, str(error).split()[0])
"""
"""Each check asserts for itself; the last one trains, and ends where accelerate refuses fp16."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    AcceleratorState._reset_state(reset_partial_state=True)


def test_loop(case: Case) -> None:
    """`Accelerator()`: a training loop with prepare, clipping and accumulation."""

    def run(device: str) -> list[tuple[float, Any]]:
        AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = Accelerator(cpu=device == "cpu", gradient_accumulation_steps=2)
        assert accelerator.device.type == device
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
        loader = torch.utils.data.DataLoader(data, batch_size=8)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            assert x.device.type == device
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach()

        return [timed(lambda x=x, y=y: step(x, y)) for _ in range(3) for x, y in loader]

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-4, atol=1e-5)


def test_two_ranks(case: Case, tmp_path: Path) -> None:
    """`Accelerator()` on two ranks by torchrun: losses of two CPU ranks."""
    device = ranks.results(PROGRAM.format(arguments=""), tmp_path)
    cpu = ranks.results(PROGRAM.format(arguments="cpu=True"), tmp_path)
    assert [one[:2] for one in device] == [[2, "tpu"]] * 2
    assert [one[:2] for one in cpu] == [[2, "cpu"]] * 2
    torch.testing.assert_close(device[0][2], cpu[0][2], rtol=1e-4, atol=1e-5)


def test_launch(case: Case, tmp_path: Path) -> None:
    """`accelerate launch` with two processes."""
    launcher = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2")
    launcher += ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
    device = ranks.results(PROGRAM.format(arguments=""), tmp_path, *launcher)
    assert [one[:2] for one in device] == [[2, "tpu"]] * 2


def test_gloo_is_refused(case: Case, tmp_path: Path) -> None:
    """Two ranks with `backend="gloo"`: an error with a hint."""
    backend = "kwargs_handlers=[__import__('accelerate').InitProcessGroupKwargs(backend='gloo')]"
    done = ranks.launch(PROGRAM.format(arguments=backend), tmp_path)
    assert done.returncode != 0
    assert "'gloo' does not serve the device tpu" in done.stderr


def test_own_test(case: Case, tmp_path: Path) -> None:
    """`accelerate test`: its checks pass up to fp16, which accelerate refuses on this device."""
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [scripts / "accelerate", "test"],
        capture_output=True,
        text=True,
        timeout=ranks.SECONDS,
        check=False,
        env={**os.environ, "PATH": path, "HF_HOME": str(tmp_path)},
    )
    assert "Device: tpu" in done.stdout
    assert "BF16 training check." in done.stdout, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("FP16 training check."), done.stdout
    assert "fp16 mixed precision requires a device in" in done.stderr


def test_own_checks_on_two_ranks(case: Case, tmp_path: Path) -> None:
    """The checks of `accelerate test` on two ranks, but that of CUDA's generator and of fp16."""
    for device, before in ranks.results(CHECKS, tmp_path):
        assert (device, before) == ("tpu", "fp16")


@pytest.mark.parametrize("script", ["test_ops", "test_sync"])
def test_own_scripts_on_two_ranks(case: Case, tmp_path: Path, script: str) -> None:
    """accelerate's own scripts of tests on two ranks"""
    program = f"""
from accelerate import Accelerator
from accelerate.test_utils.scripts import {script} as script
device = Accelerator().device.type
script.main()
report(device)
"""
    assert ranks.results(program, tmp_path) == [["tpu"], ["tpu"]]


def test_a_checkpoint_has_the_state_of_draws(case: Case, tmp_path: Path) -> None:
    """`save_state` and `load_state`: what the device draws next is what it would have drawn."""
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator()
    assert accelerator.device.type == "tpu"
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state(str(tmp_path))
    expected = torch.rand(4, device="tpu").cpu()
    accelerator.load_state(str(tmp_path))
    torch.testing.assert_close(torch.rand(4, device="tpu").cpu(), expected, rtol=0, atol=0)
    assert next(model.parameters()).device.type == "tpu"
