"""Renames PyTorch's device for others to ``tpu``, registers ``torch.tpu``; starts nothing.

Everything heavy (the native core, JAX) waits for the first use of the device, which
PyTorch announces by calling ``torch.tpu._lazy_init``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import torch

from fuse.device import backend_settings, data_parallel, inductor, lazy, module, unused

_SPARSE: Final = torch.library.Library("_", "IMPL")
"""Lasts as long as the process."""


def _first_sparse(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The catch-all of sparse tensors. Of one that is made of nothing PyTorch announces no use of
    the device, which starts here.
    """
    if not lazy.is_initialised():
        lazy.initialise()
        return op(*args, **kwargs)
    if op.namespace == "c10d":
        raise NotImplementedError(
            f"{op.name()}: the process group sends dense tensors only, and sums coordinate "
            "ones; call .to_dense() or .to_sparse_coo() first"
        )
    return importlib.import_module("fuse.device.sparse").on_host(op, *args, **kwargs)


def register() -> None:
    """Make ``torch.device("tpu")``, ``torch.tpu`` and ``Tensor.tpu()`` known. Idempotent."""
    if getattr(torch, "tpu", None) is module:
        return
    torch.utils.rename_privateuse1_backend("tpu")
    torch._register_device_module("tpu", module)
    torch.backends.tpu = backend_settings  # type: ignore[attr-defined]
    sys.modules["torch.backends.tpu"] = backend_settings
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    for key in ("SparsePrivateUse1", "SparseCsrPrivateUse1"):
        _SPARSE.fallback(_first_sparse, key)
    unused.stand_in()
    inductor.stand_before()
    data_parallel.register()
    # By name: they stand above this folder.
    importlib.import_module("fuse.distributed.registration").register()
    importlib.import_module("fuse.integrations.registration").register()
