"""Pretraining on a mesh of ranks: FSDP2 on one axis, tensor and sequence parallel on the other.

    torchrun --nproc-per-node 4 examples/pretrain.py --device tpu --tensor 2
    python examples/pretrain.py --device tpu            # one rank

Activation checkpointing (``--recompute``), a compiled block (``--compile``), and checkpoints that
any other mesh can go on from (``--save``, ``--resume``). Every mesh sees the same batches, so that
losses may be compared between them.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from fuse.examples import chargpt, llama

BATCH = 8
"""Windows a step, of all ranks together."""
LEARNING_RATE = 2e-3
WARMUP = 20


def start_ranks(device: str, tensor: int) -> DeviceMesh:
    """The group that torchrun describes, or one rank alone, as a mesh (data, tensor)."""
    if "RANK" in os.environ:
        dist.init_process_group()
    else:
        os.environ["LOCAL_RANK"] = "0"  # which the mesh asks for
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    size = dist.get_world_size()
    if size % tensor or BATCH % (size // tensor):
        raise ValueError(f"--tensor {tensor}: {size} ranks do not divide by it, or {BATCH} windows")
    return init_device_mesh(device, (size // tensor, tensor), mesh_dim_names=("data", "tensor"))


def split_tensors(model: llama.Llama, mesh: DeviceMesh) -> None:
    """Heads and hidden units go to the ranks of ``mesh``; between them the sequence is split."""
    parallelize_module(
        model,
        mesh,
        {
            "characters": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    # The backward of a compiled block fails on a tensor that a collective is still filling.
    model.characters.register_forward_hook(lambda module, inputs, result: result.clone())
    for block in model.blocks:
        parallelize_module(
            block,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(
                    input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
                ),
                "attention.query": ColwiseParallel(),
                "attention.key": ColwiseParallel(),
                "attention.value": ColwiseParallel(),
                "attention.outward": RowwiseParallel(output_layouts=Shard(1)),
                "forward_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                ),
                "feed_forward.gate": ColwiseParallel(),
                "feed_forward.inward": ColwiseParallel(),
                "feed_forward.outward": RowwiseParallel(output_layouts=Shard(1)),
            },
        )


def build_model(options: argparse.Namespace, alphabet: int, mesh: DeviceMesh) -> nn.Module:
    """The model over the mesh: tensor parallel, recomputed, compiled, sharded, in this order."""
    torch.manual_seed(0)  # on the CPU: every rank and every mesh draws the same weights
    model = llama.Llama(llama.Config(alphabet)).to(options.device)
    if mesh["tensor"].size() > 1:
        split_tensors(model, mesh["tensor"])
    for at, block in enumerate(model.blocks):
        if options.recompute:
            block = model.blocks[at] = checkpoint_wrapper(block)
        if options.compile:
            block.compile(fullgraph=True)
    if mesh["data"].size() > 1:
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh["data"])
    return model


class Training(Stateful):
    """What a checkpoint holds: model, optimizer, and the number of steps done."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self) -> dict[str, Any]:
        """By the parameters' names, whatever the mesh is."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes the state that DCP has read into this mesh's shards."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]


def batch_of(text: chargpt.Text, step: int, mesh: DeviceMesh) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the step's windows, drawn from the step's number."""
    generator = torch.Generator().manual_seed(step)
    last = len(text.train) - chargpt.CONTEXT - 1
    starts = torch.randint(last, (BATCH,), generator=generator)
    part = starts.chunk(mesh["data"].size())[mesh["data"].get_local_rank()]
    return chargpt.cut_out(text.train, part.to(text.train.device))


def train_step(training: Training, text: chargpt.Text, mesh: DeviceMesh) -> tuple[Any, Any]:
    """One step; loss and gradient norm of all ranks together, float32[] on the device."""
    training.step += 1
    for group in training.optimizer.param_groups:
        group["lr"] = LEARNING_RATE * min(1.0, training.step / WARMUP)
    loss = chargpt.loss_of(training.model, *batch_of(text, training.step, mesh))
    loss.backward()
    norm = nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
    training.optimizer.step()
    training.optimizer.zero_grad()
    mean = loss.detach() / mesh["data"].size()
    dist.all_reduce(mean, group=mesh["data"].get_group())
    return mean, norm.full_tensor() if isinstance(norm, DTensor) else norm


def train(options: argparse.Namespace, mesh: DeviceMesh) -> None:
    """Train from the checkpoint, if there is one, up to ``--steps``; rank 0 prints metrics."""
    text = chargpt.load_data(options.device)
    model = build_model(options, len(text.alphabet), mesh)
    training = Training(model, torch.optim.AdamW(model.parameters(), weight_decay=0.1))
    if options.resume:
        dcp.load({"training": training}, checkpoint_id=options.resume)
    started, before = time.perf_counter(), training.step
    while training.step < options.steps:
        loss, norm = train_step(training, text, mesh)
        if training.step % options.every == 0 or training.step == options.steps:
            values = f"loss {loss.item():.4f}, gradient norm {norm.item():.4f}"
            tokens = (training.step - before) * BATCH * chargpt.CONTEXT
            speed = tokens / (time.perf_counter() - started)
            if dist.get_rank() == 0:
                print(f"step {training.step}: {values}, {speed:,.0f} tokens a second", flush=True)
            started, before = time.perf_counter(), training.step
    if options.save:
        dcp.save({"training": training}, checkpoint_id=options.save)


def main() -> None:
    """Start the ranks, train, and end them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu or tpu (default: cpu)")
    parser.add_argument("--tensor", type=int, default=1, help="ranks that share each matrix")
    parser.add_argument("--recompute", action="store_true", help="activations, in the backward")
    parser.add_argument("--compile", action="store_true", help="each block, by torch.compile")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10, help="steps between two lines")
    parser.add_argument("--save", metavar="FOLDER", help="a checkpoint after the last step")
    parser.add_argument("--resume", metavar="FOLDER", help="go on from a checkpoint")
    options = parser.parse_args()
    # The model is gone before the group: gloo's last owner must not be a hook of it.
    train(options, start_ranks(options.device, options.tensor))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
