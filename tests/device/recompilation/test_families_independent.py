"""Families: what treats examples, rows or elements each by itself, forward and backward.

Padding is poison here: NaN, and integers that are no index.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.device.helpers import DEVICE
from tests.device.recompilation.family_helpers import plans, reasons
from tests.lanes import only_in

pytestmark = [
    only_in("accelerator", reason="where memory is the host's, sizes that move run on it"),
    pytest.mark.usefixtures("poisoned_padding"),
]
BATCHES = (5, 6, 7, 9, 10)
Result = torch.Tensor | tuple[torch.Tensor, ...]
INDEPENDENT: dict[str, Callable[[torch.Tensor], Result]] = {
    "activations": lambda x: (F.hardswish(x), F.mish(x), F.elu(x), F.leaky_relu(x), F.softplus(x)),
    "activations with borders": lambda x: (
        F.hardsigmoid(x), F.hardshrink(x), F.softshrink(x), F.hardtanh(x), F.logsigmoid(x)),
    "an activation that learns": lambda x: F.prelu(x, x.new_full((4,), 0.2)),
    "gates": lambda x: F.glu(x, 1),
    "complex numbers": lambda x: (torch.complex(x, x + 1) * torch.polar(x, x)).detach().abs(),
    "running extremes": lambda x: (x.cummax(2).values, x.cummin(3).values, x.logcumsumexp(2)),
    "spectra": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2).detach(),
    "spectra of places": lambda x: torch.fft.fft2(x).abs().detach(),
    "spreads": lambda x: (x.var(-1), x.std((2, 3), keepdim=True), *torch.var_mean(x, (1, 2, 3))),
    "normalised by hand": lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1),
    "interpolated": lambda x: (
        F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 3), mode="bilinear"),
        F.interpolate(x, (9, 9), mode="bicubic", align_corners=True),
        F.interpolate(x, (3, 4), mode="bilinear", antialias=True)),
    "interpolated along one": lambda x: F.interpolate(x[:, :, 0], 5, mode="linear"),
    "interpolated in space": lambda x: F.interpolate(
        x[:, None], (2, 3, 5), mode="trilinear", align_corners=False),
    "padded with itself": lambda x: (
        F.pad(x, (1, 2, 1, 0), "reflect"), F.pad(x, (1, 2, 3, 0), "replicate"),
        F.pad(x[:, :, 0], (1, 2), "reflect"), F.pad(x[:, None], (1, 1, 0, 2, 1, 0), "replicate")),
    "pooled in space": lambda x: (F.avg_pool3d(x[:, None], 2), F.adaptive_avg_pool3d(x, (2, 3, 4))),
    "pooled to a size": lambda x: F.adaptive_max_pool2d(x, (2, 3)),
    "pixels shuffled": lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2)),
    "sampled": lambda x: F.grid_sample(
        x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False).detach(),
    "losses of places": lambda x: F.nll_loss(
        x.log_softmax(1), (x[:, 0] > 0).long(), ignore_index=3),
    "losses of chances": lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0).to(x.dtype)),
    "counted": lambda x: (x.count_nonzero(), (x > 0).count_nonzero(1)),
    "among given ones": lambda x: torch.isin(
        (x * 3).long(), torch.tensor([1, -2], device=x.device)),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEPENDENT)
def test_examples_of_a_batch_that_moves(name: str) -> None:
    for batch in BATCHES:
        x = torch.randn(batch, 4, 6, 8, generator=torch.Generator().manual_seed(batch))
        results = []
        for given in (x, x.to(DEVICE)):
            given = given.detach().requires_grad_()
            made = INDEPENDENT[name](given * 1)
            made = made if isinstance(made, tuple) else (made,)
            if any(one.requires_grad for one in made):
                sum(one.square().sum() for one in made).backward()  # type: ignore[union-attr]
            results.append([one.detach().cpu() for one in (*made, given.grad) if one is not None])
        for found, expected in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert reasons() == {}
    assert plans() > 0
