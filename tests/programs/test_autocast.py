"""Mixed precision: autocast to bfloat16 and float16, and the gradient scaler."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.lanes import only_in
from tests.programs.harness import DEVICE, compare_with_cpu, on_host

pytestmark = pytest.mark.usefixtures("mode")

TOLERANCE = {torch.bfloat16: 3e-2, torch.float16: 6e-3}
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.norm, self.head = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.wide(x)
        return self.head(F.gelu(self.norm(hidden))), hidden.dtype


@DTYPES
def test_a_net_trains_under_autocast(dtype: torch.dtype):
    def program(device):
        model = Net().to(device)
        x, y = torch.randn(5, 4).to(device), torch.randint(3, (5,)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=dtype):
                logits, hidden = model(x)
                loss = F.cross_entropy(logits.float(), y)
            assert logits.dtype == hidden == dtype
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.dtype for p in model.parameters()]

    compare_with_cpu(program, runs=2, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@DTYPES
def test_what_autocast_lowers_and_what_it_keeps(dtype: torch.dtype):
    def program(device):
        x = torch.randn(2, 4, 4).to(device)
        with torch.autocast(device.type, dtype=dtype):
            product = x @ x
            batched = torch.bmm(x, product)
            with torch.autocast(device.type, enabled=False):
                exact = product.float() @ x
            outside = F.conv2d(x[None], torch.ones(2, 2, 1, 1, device=device))
        return product, batched, exact, outside, (x @ x)

    compare_with_cpu(program, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


SUMMED = {
    "sum": torch.sum,
    "prod": torch.prod,
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "vector_norm": torch.linalg.vector_norm,
}


@pytest.mark.parametrize("name", SUMMED)
def test_autocast_sums_halves_alone_in_single_precision(name: str):
    """As on PyTorch's accelerators: doubles, integers and complex numbers stay what they are."""
    for dtype in (torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.complex64):
        x = torch.ones(3, dtype=dtype)
        try:
            plain = SUMMED[name](x).dtype
        except RuntimeError:
            continue  # no kernel for it on the CPU either
        with torch.autocast("tpu", dtype=torch.bfloat16):
            found = SUMMED[name](x.to("tpu")).dtype
        assert found == (torch.float32 if dtype == torch.bfloat16 else plain), dtype


def test_autocast_knows_the_device():
    with torch.autocast("tpu", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("tpu")
        assert torch.get_autocast_dtype("tpu") == torch.bfloat16
    assert not torch.is_autocast_enabled("tpu")


@DTYPES
def test_a_model_in_half_precision(dtype: torch.dtype):
    def program(device):
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).to(device, dtype)
        x = torch.randn(3, 4).to(device, dtype)
        y = model(x)
        y.float().square().mean().backward()
        return y, [p.grad for p in model.parameters()]

    compare_with_cpu(program, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def scaled_steps(device: torch.device, poison_at: int) -> list[float]:
    model = nn.Linear(3, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, growth_interval=2)
    x = torch.randn(4, 3).to(device)
    scales = []
    for step in range(5):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if step == poison_at:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales + model.weight.flatten().tolist()


@pytest.mark.parametrize("poison_at", [-1, 2])
def test_the_gradient_scaler_skips_and_grows(poison_at: int):
    compare_with_cpu(lambda device: scaled_steps(device, poison_at), runs=2)


@only_in("compiled", "accelerator", reason="by default the tier may change, and last bits with it")
def test_autocast_gives_the_same_bits_every_time():
    torch.manual_seed(0)
    model, x = Net().to(DEVICE), torch.randn(5, 4).to(DEVICE)

    def once():
        with torch.autocast("tpu", dtype=torch.bfloat16):
            return on_host(model(x)[0])

    assert torch.equal(once(), once())
