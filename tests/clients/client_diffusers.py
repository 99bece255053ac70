from __future__ import annotations

from typing import Any

import diffusers
import torch

from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "diffusers"
SMALL = {
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "attention_head_dim": 8,
}


def unet() -> Any:
    torch.manual_seed(0)
    return diffusers.UNet2DModel(
        sample_size=16,
        in_channels=1,
        out_channels=1,
        **SMALL,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )


def test_unet(case: Case) -> None:
    """`UNet2DModel` with attention learns the noise of `DDPMScheduler`."""
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=100)

    def run(device: str) -> list[tuple[float, Any]]:
        model = unet().to(device)
        images, noise = normal(2, 1, 16, 16).to(device), normal(2, 1, 16, 16, seed=2).to(device)
        times = torch.tensor([10, 60], device=device)

        def loss() -> torch.Tensor:
            noisy = scheduler.add_noise(images, noise, times)
            return torch.nn.functional.mse_loss(model(noisy, times).sample, noise)

        return training(model, loss, count=4, lr=1e-3)

    equal_losses(*case.compare(run), rtol=1e-3)


def test_conditional(case: Case) -> None:
    """`UNet2DConditionModel` with cross-attention: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = diffusers.UNet2DConditionModel(
            sample_size=8,
            in_channels=4,
            out_channels=4,
            cross_attention_dim=16,
            **SMALL,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        ).to(device)
        latents, text = normal(2, 4, 8, 8).to(device), normal(2, 5, 16, seed=2).to(device)
        noise, times = normal(2, 4, 8, 8, seed=3).to(device), torch.tensor([1, 9], device=device)
        return training(
            model,
            lambda: torch.nn.functional.mse_loss(model(latents, times, text).sample, noise),
            count=4,
            lr=1e-3,
        )

    equal_losses(*case.compare(run), rtol=1e-3)


def test_pipeline(case: Case) -> None:
    """`DDIMPipeline`: images of four steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        scheduler = diffusers.DDIMScheduler(num_train_timesteps=100)
        pipe = diffusers.DDIMPipeline(unet(), scheduler).to(device)
        pipe.set_progress_bar_config(disable=True)
        assert pipe.device.type == device

        def call() -> Any:
            generator = torch.Generator().manual_seed(0)
            return pipe(generator=generator, num_inference_steps=4, output_type="np").images

        return [timed(call) for _ in range(4)]

    device, cpu = case.compare(run)
    for ours, theirs in zip(device, cpu, strict=True):
        torch.testing.assert_close(
            torch.from_numpy(ours), torch.from_numpy(theirs), rtol=1e-3, atol=1e-3
        )
