"""Test files of PyTorch's compilers, which make their classes for a GPU if they find one.

The device stands for that GPU; in the CPU's lane the CPU does, so that a test has one name. What
they compile with Inductor is compiled by this package on the device. On the CPU it is by
``aot_eager``, which traces as well and makes no code: all that is asked there is whether a test
is one of this version of PyTorch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend


def _always(test: Any) -> Any:
    return test


def stand_for_gpu(device: str) -> str:
    """Tell PyTorch's helpers, before a file imports them, that ``device`` is the GPU.

    Returns:
        what the GPU is called: the CPU otherwise than where it stands for itself.
    """
    # Imported here: it loads Inductor, which no other file needs.
    from torch._inductor import compile_fx  # noqa: PLC0415
    from torch.testing._internal import inductor_utils as helpers  # noqa: PLC0415

    gpu = "cpu:0" if device == "cpu" else device
    told: dict[str, Any] = {"GPU_TYPE": gpu, "HAS_GPU": True, "HAS_CPU": False}
    told |= {"HAS_GPU_AND_TRITON": True, "RUN_GPU": True, "RUN_CPU": False}
    told |= {"requires_gpu": lambda *_: _always}
    vars(helpers).update(told)
    backend = lookup_backend("aot_eager" if device == "cpu" else "tpu")

    def compiled(module: Any, inputs: Any, *_: Any, **__: Any) -> Callable[..., Any]:
        made: Callable[..., Any] = backend(module, inputs)
        return made

    vars(compile_fx)["compile_fx"] = compiled
    if device == "cpu":
        by_default: Any = torch._TorchCompileInductorWrapper
        by_default.__call__ = lambda self, module, inputs, **_: backend(module, inputs)
    return gpu


def compare_with_eager(module: ModuleType) -> None:
    """Have a loaded file compare what is compiled with eager in the same dtypes.

    Inductor computes in float what a program computes in halves, so PyTorch compares with floats.
    Here a compiled function rounds where eager does.
    """
    for_gpu = getattr(module, "check_model_gpu", None)
    if for_gpu is None:
        return
    names = inspect.unwrap(for_gpu).__globals__  # of the file that has it
    check = names["check_model"]

    def check_model(*given: Any, **options: Any) -> None:
        check(*given, **options | {"reference_in_float": False})

    names["check_model"] = check_model
