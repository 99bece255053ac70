"""DistributedDataParallel, unmodified: the losses are the CPU's with gloo."""

from __future__ import annotations

import re
import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import fuse
from fuse.device import lazy
from tests.distributed.programs import Model, batch, is_on, on_both, train
from tests.distributed.ranks import passes, run
from tests.marks import slow_but


def wrapped(device: str, **options: Any) -> DistributedDataParallel:
    model = DistributedDataParallel(Model().to(device), **options)
    is_on(device, model)
    return model


def plain(device: str, rank: int, size: int) -> list[float]:
    return train(wrapped(device), device, lambda step: batch(rank, step, device))


def many_buckets(device: str, rank: int, size: int) -> list[float]:
    model = wrapped(device, bucket_cap_mb=0.001, gradient_as_bucket_view=True)
    return train(model, device, lambda step: batch(rank, step, device))


def static_graph(device: str, rank: int, size: int) -> list[float]:
    model = wrapped(device, static_graph=True)
    return train(model, device, lambda step: batch(rank, step, device))


class Partial(Model):
    """Every other call leaves a block out."""

    calls = 0

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.embedding(tokens)
        for block in self.blocks[: self.calls % 2]:
            x = block(x)
        found: torch.Tensor = self.head(x)
        return found


def unused_parameters(device: str, rank: int, size: int) -> list[float]:
    model = DistributedDataParallel(Partial().to(device), find_unused_parameters=True)
    return train(model, device, lambda step: batch(rank, step, device))


def accumulated(device: str, rank: int, size: int) -> list[float]:
    model = wrapped(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(6):
        tokens, targets = batch(rank, step, device)
        with model.no_sync():
            model(tokens[:2]).logsumexp(-1).mean().backward()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def hooks(device: str, rank: int, size: int) -> list[float]:
    losses = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        torch.manual_seed(1)
        model = wrapped(device)
        model.register_comm_hook(None, hook)
        losses += train(model, device, lambda step: batch(rank, step, device), 3)
    torch.manual_seed(2)
    model = wrapped(device)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    # Random starts are drawn on the device: the losses are alike, not equal.
    compressed = train(model, device, lambda step: batch(rank, step, device), 4)
    assert all(0.5 < loss < 4 for loss in compressed)
    return losses + compressed[:2]


def ragged(device: str, rank: int, size: int) -> list[float]:
    """Rank 1 has more batches, and larger ones."""
    model = wrapped(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with Join([model]):
        for step in range(3 + 2 * rank):
            tokens, targets = batch(rank, step, device, size=2 + step % 3 + rank)
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


class Normed(nn.Module):
    """Batch statistics over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return found


def buffers(device: str, rank: int, size: int) -> list[float]:
    model = DistributedDataParallel(Normed().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(6):
        generator = torch.Generator().manual_seed(10 * step + rank)
        x = torch.randn(6, 5, generator=generator).to(device)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def synchronised(rank: int, size: int) -> None:
    """Statistics of all ranks' batches: those of one batch norm over all of them, on the CPU."""
    torch.manual_seed(0)
    alone = Normed()
    ours = Normed()
    ours.load_state_dict(alone.state_dict())
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(ours).to("tpu"))
    is_on("tpu", model)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (alone, model)]
    for step in range(6):
        batches = [
            torch.randn(6, 5, generator=torch.Generator().manual_seed(10 * step + one))
            for one in range(size)
        ]
        alone(torch.cat(batches)).square().mean().backward()
        model(batches[rank].to("tpu")).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for name, value in model.module.state_dict().items():
        torch.testing.assert_close(value.cpu(), alone.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_batch_norm_over_all_ranks(size: int) -> None:
    passes(synchronised, size)


def check_plain(rank: int, size: int) -> None:
    on_both(plain)(rank, size)
    on_both(many_buckets)(rank, size)


def check_graphs(rank: int, size: int) -> None:
    on_both(static_graph)(rank, size)
    on_both(unused_parameters)(rank, size)


def check_ragged(rank: int, size: int) -> None:
    on_both(accumulated)(rank, size)
    on_both(ragged)(rank, size)


def check_buffers(rank: int, size: int) -> None:
    on_both(buffers)(rank, size)


@pytest.mark.parametrize(
    "check", slow_but([check_plain], [check_plain, check_ragged, check_graphs, check_buffers])
)
def test_losses_are_the_cpus(check: Any) -> None:
    passes(check, 2, "cpu:gloo,tpu:tpu_dist", seconds=110)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_plain, check_ragged, check_graphs, check_buffers])
def test_losses_of_three_ranks_are_the_cpus(check: Any) -> None:
    passes(check, 3, "cpu:gloo,tpu:tpu_dist", seconds=170)


def all_hooks(rank: int, size: int) -> None:
    on_both(hooks)(rank, size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_communication_hooks(size: int) -> None:
    passes(all_hooks, size, "cpu:gloo,tpu:tpu_dist", seconds=170)


def steady(rank: int, size: int) -> None:
    model = wrapped("tpu")
    made: list[int] = []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(8):
        tokens, targets = batch(rank, step, "tpu")
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        made.append(fuse.stats()["cache"]["memory"]["misses"])
    assert made[-1] == made[2], made
    cuts = fuse.stats()["cuts"]
    assert cuts["collective"] >= 8 and "synchronize" not in cuts, cuts


@pytest.mark.parametrize("size", slow_but([2], [1, 2, 3]))
def test_a_steady_loop_compiles_nothing_after_its_third_step(size: int) -> None:
    passes(steady, size)


def counted(rank: int, size: int) -> None:
    train(wrapped("tpu"), "tpu", lambda step: batch(rank, step, "tpu"), 3)
    lazy.engine().executables.cache.close()
    print(f"compiled {fuse.stats()['compiles']}", flush=True)


@pytest.mark.slow
def test_ranks_compile_each_executable_once_between_them() -> None:
    with tempfile.TemporaryDirectory() as cache:
        ended = run(counted, 4, seconds=200, FUSE_CACHE_DIR=cache)
        texts = "\n".join(one.output for one in ended)
        assert all(one.code == 0 for one in ended), texts
        compiled = sum(map(int, re.findall(r"compiled (\d+)", texts)))
        # Every rank runs the same programs: four times as many if each compiled its own.
        alone = run(counted, 1, seconds=200, FUSE_CACHE_DIR=f"{cache}/another")
        assert compiled < 2 * int(re.findall(r"compiled (\d+)", alone[0].output)[0]), texts


def both_groups(rank: int, size: int) -> None:
    assert dist.get_backend_config().split(",")[0] == "cpu:gloo"
    on_both(plain)(rank, size)
    assert dist.get_backend_config() == "cpu:gloo,tpu:tpu_dist"


def test_a_group_without_a_backend_serves_the_device_once_it_starts() -> None:
    passes(both_groups, 2)
