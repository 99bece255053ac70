"""Every optimizer of ``torch.optim``, one parameter at a time and in lists, and clipping."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from tests.programs.harness import compare_with_cpu

pytestmark = pytest.mark.usefixtures("mode")

STEPS = 4

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD momentum": (
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "Adam": (torch.optim.Adam, {"lr": 0.01}),
    "Adam amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "AdamW maximize": (torch.optim.AdamW, {"lr": 0.01, "maximize": True}),
    "Adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01}),
    "RAdam": (torch.optim.RAdam, {"lr": 0.01}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "Adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "Rprop": (torch.optim.Rprop, {"lr": 0.01}),
    "ASGD": (torch.optim.ASGD, {"lr": 0.1, "t0": 2.0}),
    "Adafactor": (torch.optim.Adafactor, {"lr": 0.05}),
}


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def steps_with(make: Any, device: torch.device, steps: int = STEPS, each: Any = None) -> Any:
    """Losses and final parameters of a small regression."""
    model = small_model().to(device)
    x, y = torch.randn(5, 3).to(device), torch.randn(5, 2).to(device)
    optimizer = make(model.parameters())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        if each is not None:
            losses.append(each(model, optimizer))
        optimizer.step()
        losses.append(loss.item())
    return losses, list(model.parameters())


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer(name: str, foreach: bool):
    kind, options = OPTIMIZERS[name]

    def program(device):
        return steps_with(lambda p: kind(p, foreach=foreach, **options), device)

    compare_with_cpu(program, runs=2)


def test_muon_on_matrices():
    def program(device):
        weight = torch.randn(4, 3).to(device).requires_grad_()
        x = torch.randn(5, 3).to(device)
        optimizer = torch.optim.Muon([weight], lr=0.05)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = (x @ weight.t()).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    compare_with_cpu(program, runs=2, rtol=1e-2)  # Muon itself computes in bfloat16


def test_lbfgs_with_a_closure():
    """Its line search looks at losses: host reads that steer the program."""

    def program(device):
        weight = torch.tensor([2.0, -1.0]).to(device).requires_grad_()
        optimizer = torch.optim.LBFGS([weight], lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            loss = ((weight - 0.5) ** 2).sum() + (weight[0] * weight[1]) ** 2
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(3)], weight

    compare_with_cpu(program, runs=2, rtol=1e-3)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_the_fused_implementation(kind: Any):
    """``fused=True`` is one operator for the whole list; the reference is the CPU's own."""

    def program(device):
        return steps_with(lambda p: kind(p, lr=0.01, fused=True), device)

    compare_with_cpu(program, runs=2)


def test_capturable_keeps_its_step_on_the_device():
    def program(device):
        capturable = device.type != "cpu"
        return steps_with(
            lambda p: torch.optim.Adam(p, lr=0.01, foreach=True, capturable=capturable), device
        )

    compare_with_cpu(program, runs=2)


def test_parameter_groups_and_gradient_clipping():
    def program(device):
        def make(parameters):
            weights, biases = [], []
            for p in parameters:
                (weights if p.dim() > 1 else biases).append(p)
            return torch.optim.AdamW(
                [
                    {"params": weights, "weight_decay": 0.1},
                    {"params": biases, "weight_decay": 0.0, "lr": 0.1},
                ],
                lr=0.01,
            )

        def clip(model, optimizer):
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            nn.utils.clip_grad_value_(model.parameters(), 0.2)
            return norm.item()

        return steps_with(make, device, each=clip)

    compare_with_cpu(program, runs=2)


SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=8),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "warm up": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.ExponentialLR(o, 0.9)],
        milestones=[2],
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_learning_rate_schedule(name: str):
    def program(device):
        scheduler: list[Any] = []

        def make(parameters):
            optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
            scheduler.append(SCHEDULERS[name](optimizer))
            return optimizer

        def advance(model, optimizer):
            scheduler[0].step()
            return optimizer.param_groups[0]["lr"]

        with_warnings_off = pytest.MonkeyPatch()
        with_warnings_off.setattr("warnings.warn", lambda *_, **__: None)
        try:
            return steps_with(make, device, steps=6, each=advance)
        finally:
            with_warnings_off.undo()

    compare_with_cpu(program, runs=2)


def test_reduce_on_plateau_reads_the_loss():
    def program(device):
        weight = torch.ones(2, device=device, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.5)
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        for _ in range(4):
            loss = (weight * 0 + 1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step(loss.detach())
        return optimizer.param_groups[0]["lr"], weight

    compare_with_cpu(program)


def test_state_moves_between_optimizers_and_devices():
    """``state_dict`` of a model and an optimizer, saved half way and loaded into new ones."""

    def program(device):
        model = small_model().to(device)
        x = torch.randn(5, 3).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(model, optimizer):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        losses = [step(model, optimizer) for _ in range(2)]
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        losses += [step(model, optimizer) for _ in range(2)]
        again = small_model().to(device)
        other = torch.optim.Adam(again.parameters(), lr=0.01)
        again.load_state_dict(saved[0])
        other.load_state_dict(saved[1])
        losses += [step(again, other) for _ in range(2)]
        # Of the two halves one may run compiled and the other not: last digits differ.
        torch.testing.assert_close(losses[4:], losses[2:4], rtol=1e-5, atol=0)
        return losses, dict(again.state_dict())

    compare_with_cpu(program)


def test_weights_averaged_over_steps():
    def program(device):
        model = small_model().to(device)
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(4, 3).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            average.update_parameters(model)
        return dict(average.state_dict())

    compare_with_cpu(program)
