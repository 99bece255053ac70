"""transformers' ``pipeline``: a device by number, or none named, is this one if it is the only one.

It takes the accelerator that it knows by name, and without one puts the model on the CPU: a model
that was on this device as well, and where ``device=0`` says that it is to be on an accelerator.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch


def extend(module: Any) -> None:
    """Make ``Pipeline`` take the device where it would take an accelerator that it knows.

    Args:
        module: ``transformers.pipelines.base``.
    """
    module.Pipeline.__init__ = _init(module.Pipeline.__init__)


def _init(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        pipeline, model = given.arguments["self"], given.arguments["model"]
        if not _is_ours():
            original(*args, **kwargs)
            return
        layers = getattr(model, "hf_device_map", None)
        if layers is None:
            given.arguments["device"] = _chosen(model, given.arguments.get("device"))
        original(*given.args, **given.kwargs)
        first = next(iter(layers.values())) if layers else None
        if isinstance(first, int):  # its layers are where they are: this is where inputs go
            pipeline.device = torch.device("tpu", first)

    return init


def _is_ours() -> bool:
    """Whether a number means this device: CUDA goes first where it is there as well."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "tpu" and not torch.cuda.is_available()


def _chosen(model: Any, device: Any) -> Any:
    """The device that is meant: where the model is already, or the first one, if none is named."""
    if device is None:
        on: torch.device | None = getattr(model, "device", None)
        return on if on is not None and on.type == "tpu" else torch.device("tpu", 0)
    return torch.device("tpu", device) if isinstance(device, int) and device >= 0 else device
