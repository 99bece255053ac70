"""transformers' FlexAttention: it is available on this device.

transformers asks which accelerator the machine has, and refuses FlexAttention on every ``"tpu"``,
for models on the CPU too: PyTorch's own list of devices lacks it. Here that list is extended
(``flex_attention.py``).
"""

from __future__ import annotations

import sys
from typing import Any


def extend(module: Any) -> None:
    """Make ``is_torch_flex_attn_available`` say so, as versions do that do not ask for TPUs.

    Args:
        module: ``transformers.utils.import_utils``.
    """
    original = getattr(module, "is_torch_flex_attn_available", None)
    if original is None:
        return
    module.is_torch_flex_attn_available = module.is_torch_available
    package = sys.modules.get("transformers.utils")
    if getattr(package, "is_torch_flex_attn_available", None) is original:
        package.is_torch_flex_attn_available = (  # type: ignore[union-attr]
            module.is_torch_flex_attn_available
        )
