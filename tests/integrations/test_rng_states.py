"""Random states in checkpoints, of modules of the forms of accelerate and transformers."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
import torch

from fuse.integrations import rng_states

Pair = tuple[Any, Any]


def of_accelerate(folder: Path) -> Pair:
    """Calls that save and load, as ``Accelerator`` makes them."""

    def call(*args: Any, **kwargs: Any) -> str:
        return "theirs"

    module = types.SimpleNamespace(save_accelerator_state=call, load_accelerator_state=call)
    rng_states.extend(module)
    states: Any = ([], [], [], [], 3)
    return (
        lambda: module.save_accelerator_state(str(folder), *states, 7, save_on_each_node=False),
        lambda: module.load_accelerator_state(str(folder), *states, None, map_location=None),
    )


def of_transformers(folder: Path) -> Pair:
    """Calls that save and load, as ``Trainer`` makes them of itself."""

    class Trainer:
        args = types.SimpleNamespace(process_index=3)

        def _save_rng_state(self, output_dir: str) -> None:
            Path(output_dir).mkdir(exist_ok=True)

        def _load_rng_state(self, checkpoint: str | None) -> None:
            pass

    rng_states.extend(types.SimpleNamespace(Trainer=Trainer))
    trainer = Trainer()
    trainer._load_rng_state(None)
    return (
        lambda: trainer._save_rng_state(str(folder)),
        lambda: trainer._load_rng_state(str(folder)),
    )


@pytest.mark.parametrize("library", [of_accelerate, of_transformers])
def test_draws_go_on_from_the_checkpoint(library: Any, tmp_path: Path) -> None:
    save, load = library(tmp_path)
    load()  # of a checkpoint without the device: nothing to restore
    torch.manual_seed(1)
    torch.rand(3, device="tpu")
    assert save() in (None, "theirs")
    expected = torch.rand(5, device="tpu").cpu()
    torch.manual_seed(2)
    assert load() in (None, "theirs")
    torch.testing.assert_close(torch.rand(5, device="tpu").cpu(), expected, rtol=0, atol=0)
    assert [one.name for one in tmp_path.iterdir()] == ["rng_state_tpu_3.pth"]


def test_states_of_devices_that_are_gone_are_left_out(tmp_path: Path) -> None:
    torch.manual_seed(1)
    state = torch.tpu.get_rng_state()
    many = [state] * (torch.tpu.device_count() + 2)
    torch.save(many, tmp_path / rng_states.FILE.format(0))
    torch.manual_seed(2)
    rng_states.load(tmp_path, 0)
    torch.testing.assert_close(torch.tpu.get_rng_state(), state, rtol=0, atol=0)
