"""XLA's TPU platform: what its compiler cannot do, and what its executables depend on."""

from __future__ import annotations

import os
from typing import Final

from fuse.backends.xla.platform import Platform
from fuse.trace.node import Node

LIBTPU_ARGUMENTS: Final = "LIBTPU_INIT_ARGS"
"""The environment variable in which libtpu takes options of its compiler."""


class TpuPlatform(Platform):
    """Final. Everything is written in XLA's terms."""

    def __init__(self) -> None:
        super().__init__("tpu")

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        return {"libtpu arguments": os.environ.get(LIBTPU_ARGUMENTS, "")}

    def refuses(self, node: Node) -> str | None:  # noqa: D102
        if "complex128" in node.dtypes():
            return "the TPU's compiler has no complex128"
        return None
