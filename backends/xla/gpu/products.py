"""The operations of products, convolutions and attention in a GPU's program, and the peak that
bounds them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fuse.backends.xla.targets import hlo
from fuse.backends.xla.targets.hlo import Instruction

UNITS: Final = {
    "bf16": "bfloat16",
    "f16": "bfloat16",
    "f64": "float64",
    "c128": "float64",
    "s8": "int8",
    "u8": "int8",
}
COMPLEX: Final = 4
"""Real products in a complex one."""
_CONTRACTED = re.compile(r'lhs_contracting_(?:dims=\{([\d,]*)\}|dimensions":\[([\d",]*)\])')
_HIGHEST = re.compile(r"operand_precision(?:=\{|\":\[\")highest", re.IGNORECASE)
ATTENTION: Final = "__cudnn$fmha"
"""How the names of cuDNN's attention begin."""
FORWARD, BACKWARD = 2, 5
"""Products of a score in each: two, and these again with a gradient for either factor."""
_SCORES = re.compile(r'intermediate_tensor_shape.*?"dimensions":\s*\[([\d", ]*)\]')
_CAUSAL = re.compile(r'"mask_type":\s*"CAUSAL"')
_LABELS = re.compile(r"dim_labels=\w+_(\w+)->\w+")


@dataclass(frozen=True, slots=True)
class Work:
    """Operations, and the peak of the machine's that bounds them."""

    flops: float
    unit: str


def product(one: Instruction, shapes: Mapping[str, str]) -> Work | None:
    """The work of a product, convolution or attention; ``None`` for another instruction.

    ``shapes`` are those of its computation, by name.
    """
    target = one.target()
    if one.opcode == "dot" or target.startswith("__cublas"):
        return _product(one, shapes)
    if one.opcode == "convolution" or target.startswith("__cudnn$conv"):
        return _convolution(one, shapes)
    if target.startswith(ATTENTION):
        return _attention(one, shapes)
    return None


def _product(one: Instruction, shapes: Mapping[str, str]) -> Work:
    dtype, left = hlo.sizes(shapes.get(one.operands()[0], ""))
    found = _CONTRACTED.search(one.line)
    dims = re.findall(r"\d+", (found[1] or found[2] or "") if found else "")
    contracted = math.prod(left[int(dim)] for dim in dims)
    return _work(one, dtype, math.prod(hlo.sizes(one.shape)[1]) * contracted)


def _convolution(one: Instruction, shapes: Mapping[str, str]) -> Work:
    """Each number of the forward result takes one multiplication a number of a filter's."""
    operands = [shapes.get(name, "") for name in one.operands()]
    dtype = hlo.sizes(operands[0])[0]
    target = one.target()
    if "BackwardFilter" in target:
        out, filters = operands[1], one.shape
    elif "BackwardInput" in target:
        out, filters = operands[0], operands[1]
    else:
        out, filters = one.shape, operands[1]
    labels, sizes = _LABELS.search(one.line), hlo.sizes(filters)[1]
    features = sizes[labels[1].index("o")] if labels and "o" in labels[1] else 1
    each = math.prod(sizes) / max(features, 1)
    return _work(one, dtype, math.prod(hlo.sizes(out)[1]) * each)


def _attention(one: Instruction, shapes: Mapping[str, str]) -> Work:
    """Of a causal mask a half: its kernels leave out blocks that no query sees."""
    dtype, query = hlo.sizes(shapes.get(one.operands()[0], ""))
    found = _SCORES.search(one.line)
    scores = math.prod(int(size) for size in re.findall(r"\d+", found[1])) if found else 0
    products = BACKWARD if one.target().endswith("Backward") else FORWARD
    seen = 0.5 if _CAUSAL.search(one.line) else 1.0
    return _work(one, dtype, products * scores * query[-1] * seen)


def _work(one: Instruction, dtype: str, multiplications: float) -> Work:
    times = COMPLEX if dtype.startswith("c") else 1
    exact = "float32" if _HIGHEST.search(one.line) else "tfloat32"
    # Integers but those of 8 bits are no library's: a loop of XLA's own multiplies them.
    single = exact if dtype in ("f32", "c64") else "vector"
    return Work(2.0 * multiplications * times, UNITS.get(dtype, single))
