from __future__ import annotations

from typing import Any

import monai
import torch

from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "monai"


def unet() -> Any:
    torch.manual_seed(0)
    return monai.networks.nets.UNet(
        spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,)
    )


def test_segmentation(case: Case) -> None:
    """A `UNet` of three dimensions learns by `DiceCELoss`."""

    def run(device: str) -> list[tuple[float, Any]]:
        model, scan = unet().to(device), normal(2, 1, 8, 8, 8).to(device)
        criterion = monai.losses.DiceCELoss(to_onehot_y=True, softmax=True)
        return training(model, lambda: criterion(model(scan), (scan > 0).float()), count=4)

    equal_losses(*case.compare(run), rtol=1e-3)


def test_sliding_window(case: Case) -> None:
    """`sliding_window_inference` over a larger scan, then `DiceMetric`."""

    def run(device: str) -> list[tuple[float, Any]]:
        model, scan = unet().eval().to(device), normal(1, 1, 12, 12, 12).to(device)
        metric = monai.metrics.DiceMetric(include_background=True)

        def call() -> Any:
            with torch.no_grad():
                out = monai.inferers.sliding_window_inference(scan, (8, 8, 8), 2, model)
            metric.reset()
            found = torch.nn.functional.one_hot(out.argmax(1), 2).movedim(-1, 1)
            goal = torch.cat([scan <= 0, scan > 0], 1)
            metric(found, goal.long())
            return metric.aggregate()

        return [timed(call) for _ in range(4)]

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-3, atol=1e-3)
