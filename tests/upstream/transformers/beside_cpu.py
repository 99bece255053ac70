"""Tests of ours for each architecture: the device's numbers beside the CPU's.

transformers' class compares a model with itself, on one device.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import torch
import transformers

Batch = dict[str, Any]
STEPS: Final = 12
CLOSE: Final = {"rtol": 1e-3, "atol": 1e-4}
"""Float32 through two layers, whose sums are in another order."""


def leaves(value: Any) -> Iterator[torch.Tensor]:
    """The floating tensors of a model's output, in order, on the CPU."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value.detach().cpu()
    elif isinstance(value, dict):
        for one in value.values():
            yield from leaves(one)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from leaves(one)


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    """The model's own loss, or the mean square of its first output."""
    out = model(**batch)
    own = getattr(out, "loss", None)
    result: torch.Tensor = own if own is not None else out[0].float().square().mean()
    return result


class BesideCpu:
    """Each test computes on both devices, from the same weights and inputs."""

    model_tester: Any
    all_model_classes: tuple[Any, ...]

    def _pairs(self, training: bool) -> Iterator[tuple[Any, Batch, Any, Batch]]:
        """For each class the model and its inputs, on the CPU and on the device."""
        for made in self.all_model_classes:
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            torch.manual_seed(0)
            model = made(config).train(training)
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
            given = self._prepare_for_class(inputs, made, return_labels=training)  # type: ignore[attr-defined]
            batch = {
                name: one.cpu() if isinstance(one, torch.Tensor) else one
                for name, one in given.items()
            }
            there = copy.deepcopy(model).to(self.model_tester.device)
            yield model, batch, there, given

    def test_beside_cpu_outputs(self) -> None:
        """Without gradients, and again with a row that is padded on the left."""
        for model, batch, there, given in self._pairs(training=False):
            for padded in (False, True):
                if padded and "attention_mask" not in batch:
                    continue
                if padded:
                    for one in (batch, given):
                        one["attention_mask"][..., -1, :2] = 0
                with torch.no_grad():
                    cpu, device = list(leaves(model(**batch))), list(leaves(there(**given)))
                torch.testing.assert_close(device, cpu, **CLOSE, equal_nan=True)

    def test_beside_cpu_gradients(self) -> None:
        """Every parameter's: the CPU's, or as near to float64's where float32 is not enough."""
        for model, batch, there, given in self._pairs(training=True):
            exact = copy.deepcopy(model).double()
            cpu, found = (_gradients(*one) for one in ((model, batch), (there, given)))
            assert list(found) == list(cpu)
            scales = {name: max(1.0, float(one.abs().max())) for name, one in cpu.items()}
            far = [
                name
                for name, one in cpu.items()
                if not torch.allclose(found[name] / scales[name], one / scales[name], **CLOSE)
            ]
            if far:
                right = _gradients(exact, _as(torch.float64, batch))
                errors = {
                    name: [float((one[name] - right[name]).abs().max()) for one in (found, cpu)]
                    for name in far
                }
                assert all(ours <= 2 * theirs for ours, theirs in errors.values()), errors

    def test_beside_cpu_training(self) -> None:
        """Steps of `Trainer`'s optimizer, fused AdamW, by its linear schedule."""
        *_, (model, batch, there, given) = self._pairs(training=True)
        found = []
        for one, inputs in ((model, batch), (there, given)):
            optimizer = torch.optim.AdamW(one.parameters(), lr=1e-3, fused=True)
            schedule = transformers.get_linear_schedule_with_warmup(optimizer, 2, STEPS)
            losses = []
            for _ in range(STEPS):
                loss = loss_of(one, inputs)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            found.append(losses)
        torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-3)

    def test_beside_cpu_half(self) -> None:
        """In bfloat16."""
        for model, batch, there, given in self._pairs(training=False):
            with torch.no_grad():
                cpu, device = (
                    list(leaves(one.to(torch.bfloat16)(**_as(torch.bfloat16, inputs))))
                    for one, inputs in ((model, batch), (there, given))
                )
            torch.testing.assert_close(device, cpu, rtol=0.05, atol=0.05, equal_nan=True)

    def _written(self, **settings: Any) -> None:
        """What ``generate`` writes, on both."""
        for model, batch, there, given in self._pairs(training=False):
            if not model.can_generate() or "input_ids" not in batch:
                continue
            settings = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, **settings}
            cpu, device = model.generate(**batch, **settings), there.generate(**given, **settings)
            torch.testing.assert_close(device.cpu(), cpu)

    def test_beside_cpu_generate_greedy(self) -> None:
        """The most likely token, with the cache that is the default."""
        self._written()

    def test_beside_cpu_generate_beams(self) -> None:
        """Four beams."""
        self._written(num_beams=4)

    def test_beside_cpu_generate_static(self) -> None:
        """With a cache of a fixed size."""
        if not all(getattr(one, "_can_compile_fullgraph", False) for one in self.all_model_classes):
            self.skipTest("transformers has no static cache for it")  # type: ignore[attr-defined]
        self._written(cache_implementation="static", disable_compile=True)

    def test_beside_cpu_compiled(self) -> None:
        """`torch.compile` of the last class, with gradients, by its modes."""
        *_, (model, batch, there, given) = self._pairs(training=True)
        cpu = loss_of(model, batch)
        for mode in (None, "reduce-overhead"):
            torch.compiler.reset()
            if self.model_tester.device == "cpu":
                return
            there.zero_grad()
            device = loss_of(torch.compile(there, mode=mode), given)
            device.backward()
            torch.testing.assert_close(device.detach().cpu(), cpu.detach(), **CLOSE)

    def test_beside_cpu_reloaded(self) -> None:
        """Weights that were on the device, saved, loaded on the CPU and moved back, still tied."""
        for model, batch, there, given in self._pairs(training=False):
            again = copy.deepcopy(model)
            again.load_state_dict(there.state_dict())
            there.to("cpu").to(self.model_tester.device)
            assert len(list(there.parameters())) == len(list(model.parameters()))
            with torch.no_grad():
                expected, found = (list(leaves(one(**batch))) for one in (model, again))
                device = list(leaves(there(**given)))
            torch.testing.assert_close(found, expected, equal_nan=True)
            torch.testing.assert_close(device, expected, **CLOSE, equal_nan=True)


def _gradients(model: Any, batch: Batch) -> dict[str, torch.Tensor]:
    """The loss, and the gradient of every parameter that has one, on the CPU."""
    torch.manual_seed(1)
    loss = loss_of(model, batch)
    loss.backward()
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {"loss": loss.detach().cpu(), **{name: one.cpu() for name, one in found.items()}}


def _as(dtype: torch.dtype, batch: Batch) -> Batch:
    """Floating inputs in another type."""
    return {
        name: one.to(dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for name, one in batch.items()
    }
