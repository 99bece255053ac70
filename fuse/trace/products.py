"""The matrix products among PyTorch's operators."""

from __future__ import annotations

from typing import Final

PRODUCTS: Final = frozenset(["mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot"])
"""Names without overload of those that backends see: others come as one of these."""
