"""How exact products of float32 are, where a platform rounds their operands: PyTorch's settings.

Convolutions are products, but on a GPU, where PyTorch has a setting of their own for cuDNN's.

PyTorch has an old name for it, ``torch.set_float32_matmul_precision``, and newer ones
(``torch.backends.fp32_precision`` and those of each backend). Its own question for the old one
raises once a newer one has been set, so this reads the newer ones, which the old one sets too.
"""

from __future__ import annotations

from typing import Final, Literal

import torch

Own = Literal["none", "ieee", "tf32", "bf16"]
NAMES: Final[dict[str, str]] = {"ieee": "highest", "tf32": "high", "bf16": "medium"}
"""The newer names, which say a dtype, and the old ones, which say what it is worth."""
_own: Own = "none"


def own() -> Own:
    """This device's own setting; "none" follows PyTorch's for all."""
    return _own


def set_own(setting: Own) -> None:
    """Change the device's own setting, in the whole process.

    Raises:
        ValueError: it is none of the four names.
    """
    global _own
    if setting != "none" and setting not in NAMES:
        raise ValueError(f"a precision is ieee, tf32, bf16 or none, and not {setting!r}")
    _own = setting


def of_products() -> str:
    """The precision in force, by its old name: "highest", "high" or "medium". 0.5 us.

    Where the device has no setting of its own, it is the least that PyTorch has for all backends,
    for CUDA's products or for oneDNN's: the old name sets both of these.
    """
    if _own != "none":
        return NAMES[_own]
    of = torch._C._get_fp32_precision_getter
    found = {of("mkldnn", "matmul"), of("cuda", "matmul")}
    return next((NAMES[name] for name in ("bf16", "tf32") if name in found), "highest")


def of_convolutions(platform: str) -> str:
    """That of convolutions on a platform, by the same names.

    On a GPU it is ``torch.backends.cudnn.conv.fp32_precision``, which ``allow_tf32`` sets too: TF32
    as it starts, as on CUDA. Elsewhere, and where the device has a setting of its own, it is that
    of products.
    """
    if platform != "gpu" or _own != "none":
        return of_products()
    return NAMES.get(torch._C._get_fp32_precision_getter("cuda", "conv"), "highest")


def described(platform: str) -> str:
    """Both, for the keys of executables."""
    products, convolutions = of_products(), of_convolutions(platform)
    if products == convolutions:
        return products
    return f"{products}, convolutions {convolutions}"
