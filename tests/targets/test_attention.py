"""With the TPU's own compiler: long attention is JAX's kernels, whose work is in the cycles."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence

import pytest

from fuse.backends.base import Chunk
from fuse.backends.estimates import Estimate
from fuse.backends.xla.targets.names import parse
from fuse.backends.xla.targets.target import XlaTarget
from fuse.trace.node import Arg, Leaf, Node, Operand, Output, TensorArg
from fuse.trace.spec import Layout, View, contiguous_strides

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="needs libtpu, the TPU's compiler, 0.7 GB: pip install 'torch-fuse[tpu]'",
)
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
QUERY, KEY, VALUE, GRAD, OUTPUT, LOGARITHM, *GRADS, MASK = range(10)


@pytest.fixture(scope="module")
def v5e() -> Iterator[XlaTarget]:
    target = XlaTarget(parse("v5e"))
    yield target
    target.close()


class Step:
    """A chunk of causal attention over ``[1, heads, length, 128]`` and its gradient."""

    def __init__(self, length: int, dtype: str = "bfloat16", mask: bool = False) -> None:
        heads = 8
        self.dtype = dtype
        self.shapes = dict.fromkeys((*range(5), *GRADS), (1, heads, length, 128))
        self.shapes |= {LOGARITHM: (1, heads, length), MASK: (1, 1, length, length)}
        self.more = {"attn_mask": MASK} if mask else {}
        self.causal = not mask
        self.scores = heads * length * length * 4

    def layout(self, value: int) -> Layout:
        dtype = {LOGARITHM: "float32", MASK: "bool"}.get(value, self.dtype)
        return Layout(dtype, self.shapes[value])

    def view(self, value: int) -> View:
        layout = self.layout(value)
        return View(layout.dtype, layout.shape, contiguous_strides(layout.shape))

    def node(self, target: str, values: Sequence[int], results: Sequence[int]) -> Node:
        values = [*values, *([MASK] if not self.causal else [])]
        operands = [
            Operand(value, self.view(value), self.layout(value), place)
            for place, value in enumerate(values)
        ]
        tensors: list[Arg] = [TensorArg(at) for at in range(len(values))]
        mask = None if self.causal else tensors.pop()
        return Node(
            op=target,
            target=target,
            args=(*tensors, 0.0, self.causal, mask, None),
            operands=tuple(operands),
            outputs=tuple(Output(one, self.view(one), self.layout(one)) for one in results),
            writes=(),
            slots=tuple(range(len(results))),
        )

    def chunk(self) -> Chunk:
        inputs = (QUERY, KEY, VALUE, GRAD, *([] if self.causal else [MASK]))
        backward = (GRAD, QUERY, KEY, VALUE, OUTPUT, LOGARITHM)
        nodes = (
            self.node(FORWARD, (QUERY, KEY, VALUE), (OUTPUT, LOGARITHM)),
            self.node(f"{FORWARD}_backward", backward, GRADS),
        )
        leaves = tuple(Leaf(value, self.layout(value)) for value in inputs)
        return Chunk(nodes, leaves, (OUTPUT, *GRADS), (), 0)

    def compiled(self, target: XlaTarget) -> Estimate:
        found, _ = target.compile(self.chunk())
        assert found.error == ""
        return found


def test_a_step_of_long_attention_holds_no_scores(v5e: XlaTarget) -> None:
    step = Step(8192)
    found = step.compiled(v5e)
    assert found.temporary_bytes < step.scores / 100
    kernels = [cost for cost in found.costs if cost.opcode == "kernel"]
    assert [cost.node for cost in kernels] == [0, 1, 1]
    assert found.kernel_cycles > found.cycles / 2
    assert not found.unestimated
    # Two products forward and seven backward, of half the scores and half the diagonal.
    products = 9 * 2 * 8 * 8192 * 8192 / 2 * 128
    assert products <= found.flops < 1.1 * products


def test_a_mask_of_truth_values_goes_in_blocks(v5e: XlaTarget) -> None:
    step = Step(8192, mask=True)
    found = step.compiled(v5e)
    assert found.kernel_cycles == 0
    assert found.unknown_loops == 0
    assert found.temporary_bytes < step.scores / 4


def test_short_attention_is_written_out(v5e: XlaTarget) -> None:
    assert Step(1024).compiled(v5e).kernel_cycles == 0


@pytest.mark.parametrize(
    ("name", "dtype", "length"), [("v6e", "bfloat16", 2048), ("v5p", "float32", 4096)]
)
def test_kernels_compile_for_other_generations(name: str, dtype: str, length: int) -> None:
    target = XlaTarget(parse(name))
    try:
        found = Step(length, dtype).compiled(target)
        assert found.kernel_cycles > 0
    finally:
        target.close()
