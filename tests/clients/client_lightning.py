from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.fabric import Fabric

from tests.clients import ranks
from tests.clients.conftest import Case

LIBRARY = "lightning"
QUIET: dict[str, Any] = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "logger": False,
}
PROGRAM = """
import torch, lightning
from tests.clients.client_lightning import Module, QUIET, loader
lightning.seed_everything(0)
module = Module()
trainer = lightning.Trainer(max_epochs=2, enable_checkpointing=False, **QUIET, {arguments})
trainer.fit(module, loader())
weights = module.model[0].weight.detach().cpu().flatten().tolist()
report(trainer.world_size, trainer.strategy.root_device.type, weights)
"""


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1)
        )
        self.steps: list[tuple[float, float]] = []
        self.dtype_seen: Any = None
        self.start = 0.0

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        self.start = time.perf_counter()
        x, y = batch
        assert x.device.type == self.device.type
        out = self.model(x)
        self.dtype_seen = out.dtype
        loss = torch.nn.functional.mse_loss(out.float(), y)
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        loss = outputs["loss"].item()
        self.steps.append((time.perf_counter() - self.start, loss))

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("validation", torch.nn.functional.mse_loss(self.model(x).float(), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def loader() -> Any:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 8, generator=generator)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    return torch.utils.data.DataLoader(data, batch_size=8)


@pytest.mark.parametrize("name", ["auto", "tpu"])
def test_trainer(case: Case, name: str) -> None:
    """`Trainer(accelerator=...)`: fit with validation and clipping."""
    validated = {}

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        module = Module()
        trainer = lightning.Trainer(
            accelerator="cpu" if device == "cpu" else name,
            max_epochs=2,
            gradient_clip_val=1.0,
            enable_checkpointing=False,
            **QUIET,
        )
        trainer.fit(module, loader(), loader())
        assert trainer.strategy.root_device.type == device
        validated[device] = trainer.callback_metrics["validation"].item()
        return module.steps

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(validated["tpu"], validated["cpu"], rtol=1e-4, atol=1e-5)


def test_bf16_mixed(case: Case) -> None:
    """`Trainer(precision="bf16-mixed")`: autocast is the device's."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        module = Module()
        trainer = lightning.Trainer(
            accelerator="auto" if device == "tpu" else "cpu",
            precision="bf16-mixed",
            max_epochs=1,
            enable_checkpointing=False,
            **QUIET,
        )
        trainer.fit(module, loader())
        assert trainer.strategy.root_device.type == device
        assert module.dtype_seen == torch.bfloat16
        return module.steps

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=3e-2, atol=1e-2)


def test_resume(case: Case, tmp_path: Path) -> None:
    """`Trainer`: a checkpoint, resumed, ends where an unbroken run does."""
    ends = []
    for stops in ([2], [1, 2]):
        torch.manual_seed(0)
        for epochs in stops:
            module = Module()
            trainer = lightning.Trainer(max_epochs=epochs, enable_checkpointing=False, **QUIET)
            path = tmp_path / "one.ckpt"
            trainer.fit(module, loader(), ckpt_path=path if epochs != stops[0] else None)
            assert trainer.strategy.root_device.type == "tpu"
            trainer.save_checkpoint(path)
        ends.append([one.detach().cpu() for one in module.parameters()])
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-6, atol=1e-7)


def test_fabric(case: Case) -> None:
    """`Fabric()` takes the device, `accelerator="cpu"` stays."""
    assert Fabric(accelerator="cpu").device.type == "cpu"
    fabric = Fabric()
    model, optimizer = fabric.setup(m := torch.nn.Linear(8, 1), torch.optim.SGD(m.parameters()))
    x = torch.randn(4, 8)
    loss = model(fabric.to_device(x)).sum()
    assert loss.device.type == "tpu"
    fabric.backward(loss)
    optimizer.step()
    torch.testing.assert_close(model.weight.grad.cpu(), x.sum(0, keepdim=True))


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_two_ranks(case: Case, tmp_path: Path, strategy: str) -> None:
    """`Trainer` on two ranks by torchrun: weights of two CPU ranks."""
    found = {}
    for device, arguments in (("tpu", ""), ("cpu", "accelerator='cpu', devices=2,")):
        program = PROGRAM.format(arguments=f"{arguments} strategy={strategy!r}")
        found[device] = ranks.results(program, tmp_path)
        assert [one[:2] for one in found[device]] == [[2, "tpu" if device == "tpu" else "cpu"]] * 2
    torch.testing.assert_close(found["tpu"][0][2], found["cpu"][0][2], rtol=1e-4, atol=1e-5)
