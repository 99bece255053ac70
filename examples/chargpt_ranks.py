"""The character GPT on several ranks, under DDP or FSDP2: plain ``torch.distributed``.

    torchrun --nproc-per-node 2 examples/chargpt_ranks.py --device tpu --wrap ddp

Each rank has minibatches of its own; rank 0 prints. ``--device`` is the only difference between
ranks on the CPU, which talk through gloo, and ranks on the ``tpu`` device.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from fuse.examples import chargpt

BACKENDS = {"cpu": "gloo", "tpu": "cpu:gloo,tpu:tpu_dist"}
WARM = 5
"""Steps that are not timed: executables are compiled in them."""


def wrapped(model: nn.Module, wrap: str, device: str) -> nn.Module:
    """The model with its gradients averaged over the ranks, and with fsdp2 its parameters
    shared out among them."""
    if wrap == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in model.modules():
        if isinstance(block, chargpt.Block):
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(options: argparse.Namespace) -> None:
    """Train; rank 0 prints the mean loss of all ranks now and then, and the time of a step."""
    text = chargpt.load_data(options.device)
    model = wrapped(chargpt.build_model(options.device, text), options.wrap, options.device)
    optimizer = chargpt.build_optimizer(model)
    stream = chargpt.batches(text, seed=dist.get_rank())
    seconds = []
    for step in range(1, options.steps + 1):
        started = time.perf_counter()
        loss = chargpt.train_step(model, optimizer, *next(stream))
        value = loss.item()
        seconds.append(time.perf_counter() - started)
        if step % options.every == 0 or step == options.steps:
            mean = torch.tensor(value)
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}", flush=True)
    if dist.get_rank() == 0:
        timed = seconds[WARM:] or seconds
        print(f"median of a step: {1e3 * statistics.median(timed):.2f} ms", flush=True)


def main() -> None:
    """Start the group, train, and end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=sorted(BACKENDS))
    parser.add_argument("--wrap", default="ddp", choices=["ddp", "fsdp2"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=25, help="steps between two lines")
    options = parser.parse_args()
    dist.init_process_group(BACKENDS[options.device])
    # Its model is gone before the group: gloo's last owner must not be DDP's reducer.
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
