from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kornia
import pytest
import torch

from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "kornia"
FILTERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gaussian_blur2d": lambda x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.0, 1.0)),
    "sobel": kornia.filters.sobel,
    "canny": lambda x: kornia.filters.canny(x)[0],
    "rgb_to_hsv": kornia.color.rgb_to_hsv,
    "equalize": kornia.enhance.equalize,
    "rotate": lambda x: kornia.geometry.rotate(x, torch.tensor([30.0, 60.0], device=x.device)),
}


@pytest.mark.parametrize("name", FILTERS)
def test_image(case: Case, name: str) -> None:
    """Two images of 24 by 24 through a function"""
    images = torch.sigmoid(normal(2, 3, 24, 24))

    def run(device: str) -> list[tuple[float, Any]]:
        on_device = images.to(device)
        return [timed(lambda: FILTERS[name](on_device).cpu().tolist()) for _ in range(4)]

    device, cpu = case.compare(run)
    torch.testing.assert_close(torch.tensor(device), torch.tensor(cpu), rtol=1e-3, atol=1e-4)


def test_registration(case: Case) -> None:
    """A homography learned through `warp_perspective` and the SSIM loss."""

    def run(device: str) -> list[tuple[float, Any]]:
        image = torch.sigmoid(normal(1, 1, 24, 24)).to(device)
        image = kornia.filters.gaussian_blur2d(image, (7, 7), (2.0, 2.0))
        goal = torch.roll(image, 1, 3)
        model = torch.nn.Module()
        model.matrix = torch.nn.Parameter(torch.eye(3, device=device)[None])

        def loss() -> torch.Tensor:
            warped = kornia.geometry.warp_perspective(image, model.matrix, (24, 24))
            value: torch.Tensor = kornia.losses.ssim_loss(warped, goal, 5)
            return value

        return training(model, loss, count=4, lr=1e-3)

    equal_losses(*case.compare(run), rtol=1e-3)
