"""``fuse aot --fake``: a training program run by shapes, as rank 0 of many, and compiled."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from fuse.aot.fake import fake
from fuse.aot.pod import PodReport, report_of
from fuse.device import lazy
from fuse.distributed import joined

WARM: Final = 2
"""Steps of an optimizer before the one that is written down, as ``fuse.compile_pod`` runs."""


class Steps:
    """Writes down what runs from the end of one step of an optimizer to the end of the next."""

    def __init__(self) -> None:
        self.captured: joined.Captured | None = None
        self._recording: joined.Recording | None = None
        self._done = 0

    def __call__(self, *_: object) -> None:
        """An optimizer has made a step."""
        self._done += 1
        if self._done == WARM:
            self._recording = joined.begin()
        elif self._recording is not None:
            recording = self._recording
            lazy.core().cut("synchronize")
            lazy.engine().wait()
            self.stop()
            self.captured = recording.finish()

    def stop(self) -> None:
        """Write down no more: the program may end in the midst of a step."""
        if self._recording is not None:
            self._recording.stop()
            self._recording = None


@contextmanager
def as_rank_zero(ranks: int) -> Iterator[Steps]:
    """Inside, programs run by shapes: they find ``ranks`` ranks, however they ask for them."""
    found = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": "1"}
    before = {name: os.environ.get(name) for name in found}
    original, steps = dist.init_process_group, Steps()
    os.environ.update(found)
    dist.init_process_group = _fake_ranks(original, ranks)
    hook = register_optimizer_step_post_hook(steps)
    try:
        with fake():
            yield steps
            if dist.is_initialized():
                dist.destroy_process_group()
    finally:
        steps.stop()
        hook.remove()
        dist.init_process_group = original
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _fake_ranks(original: Callable[..., None], ranks: int) -> Callable[..., None]:
    @functools.wraps(original)
    def init_process_group(*_: Any, **__: Any) -> None:
        # Slow to import, hence here: it registers PyTorch's fake ranks.
        module = importlib.import_module("torch.testing._internal.distributed.fake_pg")
        original("fake", store=module.FakeStore(), rank=0, world_size=ranks)

    return init_process_group


def report(target: str, ranks: int, run: Callable[[], int]) -> tuple[int, PodReport | None]:
    """The code of ``run``, which runs the program, and the report of its third step.

    ``None`` where it made fewer. Raises as ``fuse.compile_pod`` does.
    """
    with as_rank_zero(ranks) as steps:
        code = run()
        lazy.core().cut("synchronize")
        found = None if steps.captured is None else report_of(target, steps.captured, ranks=ranks)
    return code, found
