"""Random programs whose sizes change from call to call, on a device that pads with poison.

A program's choices are made by its seed and by ranks, never by sizes: its calls are one family.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

SIZES = ((3, 5), (4, 7), (5, 9), (3, 9), (6, 18), (5, 5), (9, 3), (17, 33), (4, 7))
"""Of the batch and the length, call by call."""
WIDTH = 4
Names = tuple[Any, ...]
"""What each dimension of a tensor is called; two of one name have one size."""


@dataclass
class State:
    """The tensors of a program so far, with the names of their dimensions."""

    choose: random.Random
    device: Any
    weights: list[torch.Tensor]
    made: list[tuple[torch.Tensor, Names]] = field(default_factory=list)

    def any(self, rank: int = 0) -> tuple[torch.Tensor, Names]:
        found = [pair for pair in self.made if len(pair[1]) >= rank]
        return self.choose.choice(found)

    def like(self, names: Names) -> torch.Tensor:
        return self.choose.choice([one for one, other in self.made if other == names])

    def dim(self, names: Names) -> int:
        return self.choose.randrange(len(names))


Step = Callable[[State], tuple[torch.Tensor, Names]]
STEPS: dict[str, Step] = {}


def step(function: Step) -> Step:
    STEPS[function.__name__] = function
    return function


def without(names: Names, dim: int) -> Names:
    return (*names[:dim], *names[dim + 1 :])


@step
def one_by_one(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any()
    calls: list[Callable[[torch.Tensor], torch.Tensor]] = [
        torch.tanh, torch.exp, torch.cos, lambda x: 1 / (x + 3), lambda x: x * 2 - 1, F.gelu,
        lambda x: x * x.shape[0] if x.dim() else x, lambda x: x.clamp(-0.5, 0.5),
    ]  # fmt: skip
    return torch.tanh(s.choose.choice(calls)(x)), names


@step
def pairs(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any()
    y = s.like(names)
    call = s.choose.choice([torch.add, torch.mul, torch.sub, torch.maximum, torch.atan2])
    return call(x, y), names


@step
def reduced(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(1)
    dim = s.dim(names)
    call = s.choose.choice([torch.sum, torch.mean, torch.amax, torch.amin, torch.logsumexp])
    return torch.tanh(call(x, dim)), without(names, dim)


@step
def reduced_over_several(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(2)
    dims = s.choose.sample(range(len(names)), 2)
    call = s.choose.choice([torch.sum, torch.mean, torch.amax])
    kept = tuple(1 if at in dims else name for at, name in enumerate(names))
    return torch.tanh(call(x, dims, keepdim=True)), kept


@step
def of_all(s: State) -> tuple[torch.Tensor, Names]:
    x, _ = s.any()
    call = s.choose.choice([torch.sum, torch.mean, torch.max, torch.min])
    return torch.tanh(call(x)), ()


@step
def along(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(1)
    call = s.choose.choice([torch.softmax, torch.log_softmax, torch.cumsum])
    return torch.tanh(call(x, s.dim(names))), names


@step
def products(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(2)
    y = s.like(names)
    if s.choose.random() < 0.5:
        return torch.tanh(x @ y.transpose(-1, -2)), (*names[:-1], names[-2])
    return torch.tanh(x.transpose(-1, -2) @ y), (*names[:-2], names[-1], names[-1])


@step
def layers(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.choose.choice([pair for pair in s.made if pair[1][-1:] == ("c",)])
    which = s.choose.randrange(3)
    if which == 0:
        return torch.tanh(F.linear(x, s.weights[0], s.weights[1])), names
    if which == 1:
        return F.layer_norm(x, (WIDTH,), s.weights[1], s.weights[2]), names
    # Rounding may make another one of the largest, and anything of what that embeds.
    words = (x.detach() * 3 + 0.37).long().abs() % WIDTH
    return F.embedding(words.amax(-1), s.weights[0]), names


@step
def turned(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(2)
    a, b = s.choose.sample(range(len(names)), 2)
    order = list(range(len(names)))
    order[a], order[b] = b, a
    found = x.transpose(a, b)
    return found if s.choose.random() < 0.5 else found.contiguous(), tuple(names[d] for d in order)


@step
def flattened(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(2)
    dim = s.choose.randrange(len(names) - 1)
    return x.flatten(dim, dim + 1), (*names[:dim], (names[dim], names[dim + 1]), *names[dim + 2 :])


@step
def widened(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any()
    dim = s.choose.randrange(len(names) + 1)
    return x.unsqueeze(dim), (*names[:dim], 1, *names[dim:])


@step
def cut(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(1)
    dim = s.dim(names)
    if names[dim] not in ("b", "t"):
        return x, names
    which = s.choose.randrange(5)
    if which < 3:
        first, stop = ((1, None), (None, -1), (None, 2))[which]
        slices = [slice(None)] * len(names)
        slices[dim] = slice(first, stop)
        name = 2 if which == 2 else (names[dim], which)
        return x[tuple(slices)], (*names[:dim], name, *names[dim + 1 :])
    return x.select(dim, 0 if which == 3 else -1), without(names, dim)


@step
def joined(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(1)
    y, dim = s.like(names), s.dim(names)
    if s.choose.random() < 0.5:
        return torch.cat([x, y], dim), (*names[:dim], ("twice", names[dim]), *names[dim + 1 :])
    return torch.stack([x, y], dim), (*names[:dim], "two", *names[dim:])


@step
def counted(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(1)
    dim = s.dim(names)
    shape = [-1 if at == dim else 1 for at in range(len(names))]
    places = torch.arange(x.shape[dim], device=s.device).reshape(shape)
    which = s.choose.randrange(3)
    if which == 0:
        return x + places * 0.01, names
    if which == 1:
        return x.masked_fill(places % 2 == 0, -0.5), names
    return torch.where(places < 3, x, x * 0.5), names


@step
def triangles(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(2)
    return s.choose.choice([torch.tril, torch.triu])(x), names


@step
def written(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(1)
    y, dim = x.clone(), s.dim(names)
    which = s.choose.randrange(4)
    if which == 0:
        y.mul_(0.5).add_(s.like(names))
    elif which == 1:
        y.select(dim, 0).zero_()
    elif which == 2:
        y.narrow(dim, int(names[dim] != 1), 1).add_(1)
    else:
        y.fill_(0.25)
    return y, names


@step
def attended(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(3)
    q = x.flatten(0, len(names) - 3)[None]
    y = s.like(names).flatten(0, len(names) - 3)[None]
    found = F.scaled_dot_product_attention(q, y, y, is_causal=s.choose.random() < 0.5)
    return found.reshape(x.shape), names


@step
def gathered(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(2)
    dim = s.dim(names)
    index = x.argmax(dim, keepdim=True)
    kept = tuple(1 if at == dim else name for at, name in enumerate(names))
    return x.gather(dim, index), kept


@step
def made(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any()
    call = s.choose.choice([torch.zeros, torch.ones])
    return call(x.shape, device=s.device) + x * s.choose.choice([0.5, 2]), names


@step
def lost(s: State) -> tuple[torch.Tensor, Names]:
    x, names = s.any(1)
    target = s.like(names)
    call = s.choose.choice([F.mse_loss, F.smooth_l1_loss, F.l1_loss])
    return torch.tanh(call(x, target)), ()


def program(seed: int, device: Any, batch: int, length: int, steps: int = 9) -> list[torch.Tensor]:
    """What the program of ``seed`` gives at these sizes: its last values, and gradients."""
    values = torch.Generator().manual_seed(seed * 1000 + batch * 50 + length)
    x = torch.randn(batch, length, WIDTH, generator=values).to(device).requires_grad_()
    shapes = ((WIDTH, WIDTH), (WIDTH,), (WIDTH,))
    fixed = torch.Generator().manual_seed(seed)
    weights = [torch.randn(s, generator=fixed).to(device).requires_grad_() for s in shapes]
    state = State(random.Random(seed), device, weights, [(x, ("b", "t", "c"))])
    names = sorted(STEPS)
    for _ in range(steps):
        state.made.append(STEPS[state.choose.choice(names)](state))
    results = [one for one, _ in state.made[-4:]]
    loss = sum((one.float() * 0.1).sum() for one, _ in state.made)
    assert isinstance(loss, torch.Tensor)
    leaves = [x, *weights]
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [one.detach().cpu() for one in (*results, *(g for g in grads if g is not None))]


def beside_the_cpu(seed: int, device: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """At all of ``SIZES``, what the program of ``seed`` gives on the device and on the CPU."""
    for size in SIZES:
        expected = program(seed, "cpu", *size)
        yield from zip(program(seed, device, *size), expected, strict=True)
