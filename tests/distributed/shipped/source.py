"""The tests that PyTorch's wheel holds, read as if they had been written for this device.

``torch/testing/_internal/distributed/distributed_test.py`` is written for "cuda", and skips what it
does not know. Here its text is taken as shipped but for the device's name, its tensors are made on
the device where a test names none, and only PyTorch's own reasons to skip are kept.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.testing._internal import common_distributed, common_utils

NAME = "torch.testing._internal.distributed.distributed_test"
BACKEND = "tpu_dist"

REWRITES = (
    (r"^import torch\.cuda\n", ""),
    (
        r"^from torch\.cuda\.amp import autocast, GradScaler\n",
        "from torch.amp import autocast as _autocast, GradScaler as _GradScaler\n"
        "from functools import partial\n"
        "autocast, GradScaler = partial(_autocast, 'tpu'), partial(_GradScaler, 'tpu')\n",
    ),
    # One device a process, which is number 0 on every rank.
    (r"torch\.cuda\.set_device\([^)]*\)", "torch.tpu.set_device(0)"),
    (r"torch\.cuda\.synchronize\([^)]*\)", "torch.tpu.synchronize()"),
    (r"device_ids=\[(self\.)?rank\]", "device_ids=[0]"),
    (r"gpus = (\[rank\]|list\(rank_to_GPU\[rank\]\))", "gpus = [0]"),
    (r"int_devices = rank_to_GPU\[rank\]\[:1\]", "int_devices = [0]"),
    (r"device_id = rank_to_GPU\[rank\]\[0\]", 'device_id = "tpu"'),
    # What is written for one accelerator's backend is tried here too.
    (
        r'            if BACKEND == "nccl":\n(?=                rank_to_GPU)',
        "            if True:\n",
    ),
    (r"(?<=\W)device=(self\.rank|rank|my_rank|device_id)\b", 'device="tpu"'),
    (r"torch\.device\((rank|next_rank)\)", 'torch.device("tpu")'),
    (r"\.cuda\((self\.rank|rank|device|device_id|rank_to_GPU\[[^]]*\]\[0\])\)", ".tpu()"),
    (r"\.to\((self\.rank|rank|device_id)\)", '.to("tpu")'),
    (r"\b(device|device_id) = self\.rank\b", r'\1 = "tpu"'),
    (r'f"cuda:\{[^}]*\}"', '"tpu:0"'),
    (r"\btorch\.cuda\b", "torch.tpu"),
    (r"\.cuda\(", ".tpu("),
    (r'"cuda(?=[":])', '"tpu'),
    # Which backends a test is for: all of them are tried.
    (r"(def require_backend_is_available\(backends\):\n)", r"\1    return lambda func: func\n\n"),
)
KEPT_REASONS = (
    "world size",
    "torchvision",
    "due to flak",
    "failing",
    "mac/windows",
    "fbcode",
    "internally",
)
"""Words of those reasons to skip that are not about which backend it is."""
SMALL = "more ranks"
Test = Callable[..., Any]


def _same(test: Test) -> Test:
    return test


def _for_any(*_: Any, **__: Any) -> Callable[[Test], Test]:
    return _same


def _skip_if(condition: Any, reason: str) -> Callable[[Test], Test]:
    kept = any(word in reason.lower() for word in KEPT_REASONS)
    return unittest.skipIf(bool(condition) and kept, reason)


def _needs_ranks(test: Test) -> Test:
    """Groups of the ranks 1 and 2."""
    return unittest.skipIf(int(os.environ["WORLD_SIZE"]) < 4, SMALL)(test)


def rewritten() -> str:
    """The file's text for this device."""
    spec = importlib.util.find_spec(NAME)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text()
    for pattern, replacement in REWRITES:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert count > 0, pattern
    return text


def load() -> types.ModuleType:
    """The module, whose skips are only PyTorch's. BACKEND and WORLD_SIZE have to be set."""
    everything: Any = common_distributed
    everything.skip_if_no_gpu = _same
    everything.skip_if_lt_x_gpu = _for_any
    everything.requires_nccl_version = _for_any
    everything.skip_if_small_worldsize = _needs_ranks
    everything.init_multigpu_helper = lambda size, _: {rank: [rank] for rank in range(size)}
    for backends in everything.DistTestCases.backend_feature.values():
        backends.add(BACKEND)
    everything.DistTestCases.backend_feature["tpu"] = {BACKEND}
    helpers: Any = common_utils
    helpers.skip_but_pass_in_sandcastle_if = _skip_if
    helpers.skip_but_pass_in_sandcastle = lambda reason: _skip_if(True, reason)
    module = types.ModuleType("shipped_distributed_test")
    sys.modules[module.__name__] = module  # its classes are pickled
    code = compile(rewritten(), "distributed_test.py", "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module
