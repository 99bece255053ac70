"""The native part of process groups, built from ``csrc`` at the first group.

Its functions stand here as the methods of a class, for there is no type of one module.
``csrc/process_group/module.cpp`` defines them.
"""

from datetime import timedelta
from typing import Protocol, type_check_only

from torch._C._distributed_c10d import Backend, Store

from fuse.distributed.group import Callbacks

@type_check_only
class Native(Protocol):
    # Classes, of which ``make_group`` makes the instances.
    @property
    def Group(self) -> type[Backend]: ...  # noqa: N802
    @property
    def GroupOptions(self) -> type[Backend.Options]: ...  # noqa: N802
    def make_group(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str,
        ranks: list[int],
        simulated: bool,
        callbacks: Callbacks,
        /,
    ) -> Backend: ...
    def own_address(self) -> str: ...
    def leave_all(self, fate: str, /) -> None: ...
