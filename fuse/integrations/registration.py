"""Waits for the libraries that choose a device; ``import torch`` loads this, and none of them.

Where a library has a hook of its own that can do it, that is used. accelerate and Lightning have
none: what they decide by is a list of devices in their code. So the module that decides is
extended as soon as the program has imported it, by an import hook (``sys.meta_path``).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from fuse.device import lazy

INTEGRATIONS = {
    "accelerate.state": "fuse.integrations.accelerate",
    "accelerate.utils.modeling": "fuse.integrations.device_map",
    "accelerate.checkpointing": "fuse.integrations.rng_states",
    "transformers.trainer": "fuse.integrations.rng_states",
    "lightning.pytorch.trainer.connectors.accelerator_connector": "fuse.integrations.lightning",
    "lightning.fabric.connector": "fuse.integrations.lightning",
    "pytorch_lightning.trainer.connectors.accelerator_connector": "fuse.integrations.lightning",
    "lightning_fabric.connector": "fuse.integrations.lightning",
    "transformers.pipelines.base": "fuse.integrations.pipelines",
    "transformers.utils.import_utils": "fuse.integrations.flex_in_transformers",
    "torch.nn.attention.flex_attention": "fuse.integrations.flex_attention",
    "torch.nested._internal.sdpa": "fuse.integrations.jagged_attention",
    "torch._functorch._aot_autograd.autograd_cache": "fuse.integrations.cache_artifacts",
}
"""The module that chooses a device, and ours whose ``extend(module)`` makes it know this one."""


class _Waiting(MetaPathFinder):
    """Finds nothing itself; extends one of ``INTEGRATIONS`` once its own loader has run it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the finders behind this one give, with a loader that extends."""
        # Asked at every import of the program: one lookup where the name is none of ours.
        ours = INTEGRATIONS.get(name)
        if ours is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _extend_after(spec.loader, ours)
                return spec
        return None


def _extend_after(loader: Loader, ours: str) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        importlib.import_module(ours).extend(module)

    # On this loader alone, which is this module's: what reads sources of it still can.
    loader.exec_module = exec_module  # type: ignore[method-assign]


def _extend_control_flow() -> None:
    # PyTorch imports it with itself; nobody needs it before there is a tensor of the device.
    importlib.import_module("fuse.integrations.control_flow").extend()


def register() -> None:
    """Extend what is imported already, and wait for the rest. Idempotent."""
    if any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Waiting())
    lazy.when_started(_extend_control_flow)
    for name, ours in INTEGRATIONS.items():
        # One that is being imported right now has a loader without us: it imports torch first of
        # all in its package, so its own module is never among these half done.
        if name in sys.modules:
            importlib.import_module(ours).extend(sys.modules[name])
