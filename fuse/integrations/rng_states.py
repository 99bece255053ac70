"""The state of the device's generators in checkpoints of transformers' ``Trainer`` and accelerate.

Both write the states of the accelerators that they know by name. Without this device's, dropout of
a resumed run is not that of the unbroken one. It is a file beside theirs.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from fuse.device import lazy, random

FILE = "rng_state_tpu_{}.pth"
"""Its field is the rank."""


def extend(module: Any) -> None:
    """Make a module's checkpoints hold the device's random states.

    Args:
        module: ``transformers.trainer`` or ``accelerate.checkpointing``.
    """
    if hasattr(module, "Trainer"):
        trainer = module.Trainer
        trainer._save_rng_state = _trainer_saves(trainer._save_rng_state)
        trainer._load_rng_state = _trainer_loads(trainer._load_rng_state)
    else:
        module.save_accelerator_state = _accelerate_saves(module.save_accelerator_state)
        module.load_accelerator_state = _accelerate_loads(module.load_accelerator_state)


def save(folder: str | Path, rank: int) -> None:
    """Write the state of every device's generator, if the program has used the device."""
    if lazy.is_initialised():
        torch.save(random.get_rng_state_all(), Path(folder) / FILE.format(rank))


def load(folder: str | Path, rank: int) -> None:
    """Restore what ``save`` has written, for as many devices as there are now.

    A checkpoint that was made without the device restores nothing.
    """
    path = Path(folder) / FILE.format(rank)
    if path.is_file():
        states = torch.load(path, weights_only=True)
        for index, state in enumerate(states[: torch.accelerator.device_count()]):
            random.set_rng_state(state, index)


def _trainer_saves(original: Any) -> Any:
    @functools.wraps(original)
    def save_rng_state(self: Any, output_dir: str) -> None:
        original(self, output_dir)
        save(output_dir, self.args.process_index)

    return save_rng_state


def _trainer_loads(original: Any) -> Any:
    @functools.wraps(original)
    def load_rng_state(self: Any, checkpoint: str | None) -> None:
        original(self, checkpoint)
        if checkpoint is not None:
            load(checkpoint, self.args.process_index)

    return load_rng_state


def _accelerate_saves(original: Any) -> Any:
    @functools.wraps(original)
    def save_accelerator_state(
        output_dir: str,
        model_states: Any,
        optimizers: Any,
        schedulers: Any,
        dataloaders: Any,
        process_index: int,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        states = (model_states, optimizers, schedulers, dataloaders)
        result = original(output_dir, *states, process_index, *args, **kwargs)
        save(output_dir, process_index)
        return result

    return save_accelerator_state


def _accelerate_loads(original: Any) -> Any:
    @functools.wraps(original)
    def load_accelerator_state(
        input_dir: str,
        models: Any,
        optimizers: Any,
        schedulers: Any,
        dataloaders: Any,
        process_index: int,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        states = (models, optimizers, schedulers, dataloaders)
        result = original(input_dir, *states, process_index, *args, **kwargs)
        load(input_dir, process_index)
        return result

    return load_accelerator_state
