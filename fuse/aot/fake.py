"""``fuse.fake``: a program of any size, of any number of ranks, in one process: shapes only."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any, Final, final

import torch.distributed as dist

from fuse.device import lazy
from fuse.errors import FuseError, describe
from fuse.modes import get_backend, set_backend

BACKEND: Final = "fuse.backends.fake.backend:create"


@final
class fake(AbstractContextManager["fake"]):  # noqa: N801  (called like a function, as torch.device)
    """Inside, tensors of the device ``tpu`` have shapes and dtypes and no data.

    Nothing is computed and nothing held, so a step of a model of any size is recorded in seconds,
    in the memory of its graph. This process is rank 0 of ``ranks``: the default process group is
    made on entering, and its collectives return at once; ``init_device_mesh``, FSDP, DTensor and
    DDP work on it as they do. Make the model inside, on the device, so that its weights are fake:
    ``with torch.device("tpu"):``, or on ``meta`` and ``to_empty(device="tpu")``.

    A number that the program reads is a stand-in: 1.0, 1 or False. Reading more than one number
    raises, as does what would run on the host. Tensors made inside are of no use outside, where
    they count as memory of the device until they are let go of.

    Args:
        ranks: how many ranks there seem to be.

    Raises:
        FuseError: ``ranks`` is less than 1, or a process group exists already.

    Example:
        ```python
        with fuse.fake():
            with torch.device("tpu"):
                layer = torch.nn.Linear(65536, 65536, bias=False)
            y = layer(torch.randn(8192, 65536, device="tpu"))
            print(y.shape, y.sum().item())  # torch.Size([8192, 65536]) 1.0
        ```
    """

    def __init__(self, ranks: int = 1) -> None:
        if ranks < 1:
            raise FuseError(describe(f"a fake run has 1 rank or more, not {ranks}"))
        self.ranks = ranks
        self._before = ""

    def __enter__(self) -> fake:
        if self.ranks > 1 and dist.is_initialized():
            raise FuseError(
                describe(
                    f"a fake run of {self.ranks} ranks makes the default process group, and there "
                    "is one",
                    hint="call torch.distributed.destroy_process_group() first",
                )
            )
        self._before = get_backend()
        set_backend(BACKEND)
        backend: Any = lazy.engine().backend
        backend.forget_reads()
        if self.ranks > 1:
            # PyTorch's fake ranks: the module registers them. Slow to import, hence here.
            module = importlib.import_module("torch.testing._internal.distributed.fake_pg")
            dist.init_process_group("fake", store=module.FakeStore(), rank=0, world_size=self.ranks)
        return self

    def __exit__(self, *_: object) -> None:
        if self.ranks > 1 and dist.is_initialized():
            dist.destroy_process_group()
        set_backend(self._before)

    def reads(self) -> dict[str, int]:
        """The user's lines that were answered by a stand-in, and how often each."""
        backend: Any = lazy.engine().backend
        found: dict[str, int] = backend.reads()
        return found
