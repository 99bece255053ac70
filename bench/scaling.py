"""What ranks send, and what a TPU's compiler says of joined steps: the tables of docs/scaling.md.

    python -m bench.scaling                    # bytes a rank sends a step: parameters only
    python -m bench.scaling v5e [PROGRAM ...]  # DDP steps joined and compiled for 1 to 256 chips
    python -m bench.scaling v5e mlp:4,16       # for these numbers of chips

The second needs libtpu and no TPU. Its cycles are the compiler's estimates.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

# Read when fuse starts: a step is captured where its collectives are programs of the runtime.
os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "FUSE_COLLECTIVES": "xla",
    "FUSE_TIER": "compiled",
}

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench import programs
from fuse.distributed import joined

TOPOLOGIES = {1: "1x1", 4: "2x2", 16: "4x4", 64: "8x8", 256: "16x16"}
LINK = 200e9
"""Bytes a second that a v5e chip sends to its neighbours, all links together: half of the 400 GB/s
in both directions of https://cloud.google.com/tpu/docs/v5e."""
CLOCK = 1.5e9
"""Cycles a second of a v5e: its published peak over what its matrix units do in a cycle."""
SECONDS = 900.0
"""Processor time that the compiler may take for one row."""
TENSOR_PARALLEL = 4
REPLICAS = 4
NAMES = ("gpt_small", "gpt_large", "digits", "residual", "mlp")


@dataclass(frozen=True)
class Size:
    """A model's numbers: ``activations`` is one float32[batch, length, width] a rank."""

    name: str
    parameters: int
    layers: int = 0
    activations: int = 0


def ring(size: int, ranks: int) -> float:
    """Bytes that each rank sends while ``size`` bytes are gathered, or reduced and scattered."""
    return size * (ranks - 1) / ranks


def ddp(model: Size, ranks: int) -> float:
    """Gradients reduced and scattered, then gathered: an all-reduce."""
    return 2 * ring(4 * model.parameters, ranks)


def fsdp2(model: Size, ranks: int) -> float:
    """Parameters gathered in the forward and the backward pass, gradients scattered."""
    return 3 * ring(4 * model.parameters, ranks)


def hsdp(model: Size, ranks: int) -> float:
    """FSDP2 within each of ``REPLICAS``, whose shards of the gradients are then summed."""
    shards = ranks // REPLICAS
    share = Size(model.name, model.parameters // shards)
    return fsdp2(model, shards) + ddp(share, REPLICAS)


def two_dimensional(model: Size, ranks: int) -> float:
    """FSDP2 of the ``TENSOR_PARALLEL``-th part, and four sums of activations a layer."""
    part = Size(model.name, model.parameters // TENSOR_PARALLEL)
    sums = 4 * model.layers * 2 * ring(4 * model.activations, TENSOR_PARALLEL)
    return fsdp2(part, ranks // TENSOR_PARALLEL) + sums


WAYS = {"DDP": ddp, "FSDP2": fsdp2, f"HSDP, {REPLICAS} replicas": hsdp}


def billion() -> Size:
    """A GPT of 20 layers and width 2,048: metadata only. One sequence of 1,024 tokens a rank."""
    with torch.device("meta"):
        model = programs.Transformer(20, 2048, 16, True, 1024)
    parameters = sum(one.numel() for one in model.parameters())
    return Size("GPT, 20 layers of width 2,048", parameters, 20, 1024 * 2048)


def models() -> Iterator[Size]:
    """The GPT of a billion, and the bench's programs."""
    yield billion()
    for name in NAMES:
        found: list[nn.Module] = []
        with mock.patch.object(programs, "_training", lambda model, *_, to=found: to.append(model)):
            getattr(programs, name)("cpu")
        yield Size(name, sum(one.numel() for one in found[0].parameters()))


def print_bytes() -> None:
    """The first table."""
    print("| model | parameters | ranks | " + " | ".join(WAYS) + " | 2-D |")
    print("| --- | ---: | ---: |" + " ---: |" * (len(WAYS) + 1))
    for model in models():
        for ranks in (4, 16, 64, 256):
            cells = [f"{way(model, ranks) / 1e6:,.1f}" for way in WAYS.values()]
            cells.append(f"{two_dimensional(model, ranks) / 1e6:,.1f}" if model.layers else "")
            print(f"| {model.name} | {model.parameters:,} | {ranks} | " + " | ".join(cells) + " |")


def captured(name: str) -> joined.Captured:
    """A steady step of a program under DDP, on this one rank."""

    def wrapped(model: nn.Module, *others: object) -> programs.Step:
        return training(DistributedDataParallel(model), *others)  # type: ignore[arg-type]

    training = programs._training
    with mock.patch.object(programs, "_training", wrapped):
        step = getattr(programs, name)("tpu")
    for _ in range(4):
        step()
    return joined.capture(step)


def rows(asked: str) -> tuple[str, dict[int, str]]:
    """A program and its topologies, of ``NAME`` or ``NAME:CHIPS,CHIPS``."""
    name, _, chips = asked.partition(":")
    return name, {int(one): TOPOLOGIES[int(one)] for one in chips.split(",") if one} or TOPOLOGIES


def print_cycles(target: str, names: tuple[str, ...]) -> None:
    """The second table, a row as soon as it is there."""
    store = dist.HashStore()
    dist.init_process_group("cpu:gloo,tpu:tpu_dist", store=store, rank=0, world_size=1)
    print("| program | chips | cycles | collectives | MB sent | us computing | us sending | weak |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for name, topologies in map(rows, names or NAMES):
        step = captured(name)
        forms = step.program.forms()
        size = sum(4 * count for form in forms for count in form.sources)
        for chips, shape in topologies.items():
            estimate = joined.compile_for(f"{target}:{shape}", step, SECONDS)
            if estimate.error:
                print(
                    f"| {name} | {chips} | {estimate.error.splitlines()[0]} | | | | | |", flush=True
                )
                continue
            sent = 2 * ring(size, chips)
            computing, sending = estimate.cycles / CLOCK, sent / LINK
            kept = estimate.unestimated
            collectives = sum(count for kind, count in kept.items() if "all-reduce" in kind)
            print(
                f"| {name} | {chips} | {estimate.cycles:,} | {collectives} of {len(forms)} "
                f"| {sent / 1e6:.2f} | {1e6 * computing:.0f} | {1e6 * sending:.1f} "
                f"| {computing / (computing + sending):.0%} |",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print_bytes()
    else:
        print_cycles(sys.argv[1], tuple(sys.argv[2:]))
