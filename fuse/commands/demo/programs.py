"""The two example programs behind one shape, so that one loop trains either anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from fuse.examples import chargpt, digits

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Training:
    """One model in training on one device.

    Attributes:
        step: runs one optimizer step and returns the loss before it, float32[].
        evaluate: the figure the program is judged by, on data it has not seen.
    """

    step: Callable[[], torch.Tensor]
    evaluate: Callable[[], float]


@dataclass(frozen=True)
class Program:
    """A program of the demo.

    Attributes:
        name: what the command line calls it.
        title: what the report calls it.
        score: the name of what ``Training.evaluate`` returns.
        score_format: how to print that figure.
        start: ``start(device, steps)`` builds data, model and optimizer anew.
    """

    name: str
    title: str
    score: str
    score_format: str
    start: Callable[[str, int], Training]


def _digits(device: str, steps: int) -> Training:
    data = digits.load_data(device)
    model = digits.build_model(device)
    optimizer = digits.build_optimizer(model)
    batches = digits.batches(data)
    return Training(
        step=lambda: digits.train_step(model, optimizer, *next(batches)),
        evaluate=lambda: digits.accuracy(model, data),
    )


def _chargpt(device: str, steps: int) -> Training:
    text = chargpt.load_data(device)
    model = chargpt.build_model(device, text)
    optimizer = chargpt.build_optimizer(model)
    schedule = chargpt.build_schedule(optimizer, steps)
    batches = chargpt.batches(text)

    def step() -> torch.Tensor:
        loss = chargpt.train_step(model, optimizer, *next(batches))
        schedule.step()
        return loss

    return Training(step=step, evaluate=lambda: chargpt.held_out_loss(model, text))


PROGRAMS = (
    Program(
        name="digits",
        title="Convolutional net on handwritten digits",
        score="test accuracy",
        score_format="{:.1%}",
        start=_digits,
    ),
    Program(
        name="chargpt",
        title="Character GPT on Python's documentation",
        score="held-out loss",
        score_format="{:.4f}",
        start=_chargpt,
    ),
)
