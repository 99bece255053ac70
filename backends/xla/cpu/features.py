"""What code that XLA generates for this machine's CPU may rely on."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path


def host_features() -> str:
    """Architecture, instruction sets and cores of this machine."""
    flags = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    digest = hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:16]
    return f"{platform.machine()} {digest} {os.cpu_count()} cores"
