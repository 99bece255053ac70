"""A mixture of experts: rows sorted by expert, then products of groups of rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fuse
from tests.lanes import only_in
from tests.programs.harness import compare_with_cpu, train

ROWS, WIDTH, HIDDEN, EXPERTS = 24, 8, 16, 4


class Experts(nn.Module):
    """Each row goes to the two experts it scores highest; no shape depends on which."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) / HIDDEN**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(self.router(x).softmax(-1), 2)
        ordered, where = torch.sort(chosen.reshape(-1), stable=True)
        # The device counts integers, as accelerators do; the CPU's kernel takes floats alone.
        counted = ordered.float() if x.device.type == "cpu" else ordered.int()
        counts = torch.histc(counted, EXPERTS, 0, EXPERTS - 1)
        ends = counts.cumsum(0, dtype=torch.int32)
        hidden = F.grouped_mm(x[where // 2], self.up.transpose(1, 2), offs=ends).relu()
        found = F.grouped_mm(hidden, self.down, offs=ends) * weights.reshape(-1)[where, None]
        return torch.zeros_like(x).index_add(0, where // 2, found)


@pytest.mark.usefixtures("mode")
def test_a_mixture_of_experts_trains():
    def program(device):
        model, x = Experts(), torch.randn(ROWS, WIDTH)
        return train(model, (x,), lambda m, x: (m(x) - x).square().mean(), device)

    compare_with_cpu(program, runs=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("ends", [(7, 7, 20, 24), (0, 24, 24, 24), (24, 24, 24, 24)], ids=str)
def test_gradients_of_grouped_products(dtype, ends):
    def program(device):
        x = torch.randn(ROWS, WIDTH).to(device, dtype).requires_grad_()
        y = torch.randn(EXPERTS, HIDDEN, WIDTH).to(device, dtype).requires_grad_()
        offsets = torch.tensor(ends, dtype=torch.int32).to(device)
        z = F.grouped_mm(x, y.transpose(1, 2), offs=offsets)
        z.square().sum().backward()
        return z, x.grad, y.grad

    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    compare_with_cpu(program, rtol=tolerance, atol=tolerance)


def test_columns_in_groups():
    def program(device):
        x, y = torch.randn(EXPERTS, HIDDEN, WIDTH).to(device), torch.randn(WIDTH, ROWS).to(device)
        ends = torch.tensor([4, 8, 8, ROWS], dtype=torch.int32).to(device)
        return F.grouped_mm(x, y, offs=ends), F.grouped_mm(x, x.transpose(1, 2))

    compare_with_cpu(program)


def test_rows_in_no_group_are_zero():
    x, y = torch.ones(6, 4, device="tpu"), torch.ones(2, 4, 4, device="tpu")
    found = F.grouped_mm(x, y, offs=torch.tensor([1, 3], dtype=torch.int32).to("tpu"))
    assert found[:, 0].tolist() == [4.0, 4.0, 4.0, 0.0, 0.0, 0.0]


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_other_groups_compile_nothing():
    torch.manual_seed(0)
    model = Experts().to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    compiles = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = model(torch.randn(ROWS, WIDTH).to("tpu")).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        compiles.append(fuse.stats()["compiles"])
    assert compiles[-1] == compiles[2]


@pytest.mark.parametrize(
    ("shapes", "options", "text"),
    [
        (((6, 4), (2, 4, 4)), {}, "Have to provide offsets if there is a 2d matrix"),
        (((2, 6, 4), (2, 4, 4)), {"ends": [1, 2]}, "no offset if both matrices are 3d"),
        (((6, 4), (3, 4, 4)), {"ends": [1, 2]}, "matrix batch sizes have to match"),
        (((6, 8), (2, 4, 4)), {"ends": [1, 2]}, "contraction dimension of mat_a and mat_b"),
        (((4,), (2, 4, 4)), {"ends": [1, 2]}, "mat_a has to be 2 or 3d"),
        (((2, 6, 4), (3, 4, 4)), {}, "batched dimension has to match"),
        (((6, 4), (2, 4, 4)), {"ends": [[1, 2]]}, "offs has to be 1D"),
        (((6, 4), (2, 4, 4)), {"ends": [1.0, 2.0]}, "Offsets have to be int32"),
        (((6, 4), (2, 4, 4)), {"ends": [1, 2], "bias": True}, "Bias not supported yet"),
        (((6, 4), (2, 4, 4)), {"ends": [1, 2], "dtype": torch.bfloat16}, "must match `mat_a`"),
    ],
)
def test_wrong_arguments_are_refused_as_on_the_cpu(shapes, options, text):
    for device in ("cpu", "tpu"):
        x, y = (torch.ones(shape, device=device) for shape in shapes)
        ends = torch.tensor(options["ends"], device=device) if "ends" in options else None
        if ends is not None and not ends.is_floating_point():
            ends = ends.int()
        bias = torch.ones(4, device=device) if "bias" in options else None
        with pytest.raises(RuntimeError, match=text):
            torch._grouped_mm(x, y, offs=ends, bias=bias, out_dtype=options.get("dtype"))


def test_dtypes_that_have_no_grouped_product():
    x, y = torch.ones(6, 8, device="tpu"), torch.ones(2, 8, 8, device="tpu")
    ends = torch.tensor([1, 2], dtype=torch.int32).to("tpu")
    with pytest.raises(RuntimeError, match="Expected mat_a to be Float32, BFloat16 or Float16"):
        torch._grouped_mm(x.double(), y.double(), offs=ends)
    with pytest.raises(RuntimeError, match="to have the same dtype"):
        torch._grouped_mm(x, y.bfloat16(), offs=ends)


def test_histograms_that_are_refused():
    with pytest.raises(RuntimeError, match="bins must be > 0, but got 0"):
        torch.histc(torch.ones(3, device="tpu"), 0)
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(torch.ones(3, device="tpu"), 3, 2, 1)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.histc(torch.ones(3, dtype=torch.bool, device="tpu"), 3)
