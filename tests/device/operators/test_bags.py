"""Embedding bags and segments beside PyTorch's CPU, in all their forms, with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.device.helpers import DEVICE

INDICES = torch.tensor([1, 4, 4, 0, 2, 5])
FORMS: dict[str, dict[str, torch.Tensor]] = {
    "rows": {"input": INDICES.reshape(2, 3)},
    "offsets": {"input": INDICES, "offsets": torch.tensor([0, 2, 2, 5])},
    "one bag": {"input": INDICES, "offsets": torch.tensor([0])},
}
DTYPES = (
    (torch.int64, torch.int64),
    (torch.int32, torch.int32),
    (torch.int32, torch.int64),
    (torch.int64, torch.int32),
)
KINDS = [
    *((mode, sparse) for mode in ("sum", "mean", "weighed") for sparse in (False, True)),
    ("max", False),  # PyTorch has no sparse gradient of it
]


def gradients(device: str, form: dict[str, torch.Tensor], **options: Any) -> list[torch.Tensor]:
    """A bag's result and the gradient of its table, and of its weights where it has some."""
    table = (torch.arange(24.0).reshape(8, 3) / 7).to(device).requires_grad_()
    weights = options.pop("weights", False)
    leaves = [table]
    if weights:
        shape = form["input"].shape
        leaves.append((torch.arange(6.0).reshape(shape) - 2).to(device).requires_grad_())
        options["per_sample_weights"] = leaves[1]
    given = {name: one.to(device) for name, one in form.items()}
    result = F.embedding_bag(weight=table, **given, **options)
    result.square().sum().backward()
    return [one.detach().cpu() for one in (result, *(leaf.grad.to_dense() for leaf in leaves))]


@pytest.mark.parametrize(("mode", "sparse"), KINDS)
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_gradients(name: str, dtypes: tuple[torch.dtype, ...], mode: str, sparse: bool):
    form = {
        key: one.to(dtype) for (key, one), dtype in zip(FORMS[name].items(), dtypes, strict=False)
    }
    options = {
        "mode": mode if mode != "weighed" else "sum",
        "weights": mode == "weighed",
        "sparse": sparse,
        "padding_idx": 4,
    }
    expected = gradients("cpu", form, **options)
    for _ in range(2):
        torch.testing.assert_close(gradients(DEVICE, form, **options), expected)


@pytest.mark.parametrize("reduce", ["max", "amax", "min", "amin", "sum", "mean", "prod"])
def test_segments_are_reduced_by_every_name(reduce: str):
    found = []
    for device in ("cpu", DEVICE):
        x = torch.arange(6.0).to(device).requires_grad_()
        ends = torch.tensor([0, 2, 5, 6]).to(device)
        result = torch._segment_reduce(x, reduce, offsets=ends)
        result.sum().backward()
        found.append([result.detach().cpu(), x.grad.cpu()])
    torch.testing.assert_close(found[1], found[0])
