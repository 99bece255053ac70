"""Makes the process group known to PyTorch; imports nothing heavy and starts nothing."""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.distributed as dist

from fuse.device import lazy

NAME = "tpu_dist"
"""The backend's name, the one that clients of the device ``tpu`` use."""
ALIASES = ("tpu", "fuse")
_UNDEFINED = "undefined"  # the backend's name where the program gave none


def register() -> None:
    """Register the backend and its aliases; ``init_process_group()`` then serves both devices."""
    if not dist.is_available():
        return
    c10d = importlib.import_module("torch.distributed.distributed_c10d")
    for name in (NAME, *ALIASES):
        # CPU tensors too: named alone, the backend is the group's only one.
        dist.Backend.register_backend(name, _create, extended_api=True, devices=["tpu", "cpu"])
    _serve_both(c10d.BackendConfig)
    lazy.when_started(_join_groups)


def _create(options: Any, _: object) -> Any:
    """A group's backend, for ``init_process_group`` and ``new_group``."""
    # Imported here: a program that makes no such group loads none of it.
    return importlib.import_module("fuse.distributed.group").create(options)


def _serve_both(config: Any) -> None:
    """Where the program names no backend, CPU tensors are gloo's, and until the device is used,
    there are no others: from 2.15 on PyTorch counts on every accelerator that there is.
    """
    original = config.__init__

    def __init__(self: Any, backend: Any) -> None:
        original(self, backend)
        found = self.device_backend_map
        if lazy.is_fake():
            # PyTorch's own group of ranks that are not there tells nobody what was called.
            self.device_backend_map = dict.fromkeys(("cpu", "tpu"), dist.Backend(NAME))
        elif str(backend) == _UNDEFINED and "tpu" in found:
            used = found if lazy.is_initialised() else {}
            self.device_backend_map = {"cpu": dist.Backend("gloo"), **used}

    config.__init__ = __init__


def _join_groups() -> None:
    """The device has started: it becomes a member of groups that were made without a backend."""
    if not dist.is_initialized():
        return
    c10d = importlib.import_module("torch.distributed.distributed_c10d")
    world = c10d._world
    for group, (backend, store) in world.pg_map.items():
        if str(backend) != _UNDEFINED or torch.device("tpu") in group._device_types:
            continue
        options = c10d._DistributedBackendOptions()
        options.store = c10d.PrefixStore("tpu/", store)
        options.group_rank, options.group_size = group.rank(), group.size()
        options.timeout = group._get_backend(torch.device("cpu")).options._timeout
        options.group_id = name = group.group_name
        description = group.group_desc
        members = [] if group is c10d.GroupMember.WORLD else world.pg_group_ranks[group]
        options.global_ranks_in_group = list(members)
        kind = c10d.ProcessGroup.BackendType.CUSTOM
        group._register_backend(torch.device("tpu"), kind, _create(options, None))
        # A group's name and description are read from any one of its backends.
        group._set_group_name(name)
        group._set_group_desc(description)
        world.pg_backend_config[group] = f"cpu:gloo,tpu:{NAME}"
