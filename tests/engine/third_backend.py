"""A backend of no library's: PyTorch's CPU kernels, one node after another.

It knows ``fuse.backends.base`` and the program as data. Its arrays say nothing to other code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from fuse.backends.base import Backend, Chunk
from fuse.trace.bind import bind
from fuse.trace.functional import find_overload
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, TensorArg
from fuse.trace.spec import Layout, View

_KERNELS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


@dataclass(frozen=True, eq=False)
class Held:
    """The bytes of one buffer."""

    memory: torch.Tensor
    layout: Layout


@final
class TorchBackend(Backend):
    """An executable is the chunk itself."""

    name = "torch"

    def __init__(self) -> None:
        self.executed = 0

    def fingerprint(self) -> dict[str, str]:
        return {"backend": self.name}

    def device_count(self) -> int:
        return 1

    def device_name(self) -> str:
        return "PyTorch's CPU kernels"

    def shares_host_memory(self) -> bool:
        return False

    def has_rule(self, overload: str) -> bool:
        if (kernel := find_overload(overload)) is None or kernel._schema.is_mutable:
            return False  # only what computes a result, and changes nothing
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        return any(has_kernel(f"aten::{overload}", key) for key in _KERNELS)

    def reject(self, node: Node) -> str | None:
        return None if self.has_rule(node.target) else f"PyTorch has no kernel of {node.target}"

    def static_places(self, node: Node) -> tuple[int, ...]:
        return ()

    def compile(self, chunk: Chunk) -> Any:
        return chunk

    def dump(self, executable: Any) -> bytes | None:
        return None  # and so `load` never comes

    def load(self, data: bytes) -> Any:
        raise ValueError(data)

    def execute(self, executable: Any, scalars: bytes, arrays: Sequence[Any]) -> list[Any]:
        self.executed += 1
        inputs = zip(executable.inputs, arrays, strict=True)
        values: dict[int, Held] = {leaf.value: array for leaf, array in inputs}
        words = np.frombuffer(scalars, np.uint64)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for node in executable.nodes:
                run(node, values, words)
        return [values[value] for value in executable.outputs]

    def put(self, data: np.ndarray, device: int) -> Any:
        memory = torch.from_numpy(np.array(data, order="C").reshape(-1).view(np.uint8))
        return Held(memory, Layout(data.dtype.name, data.shape))

    def get(self, array: Any) -> np.ndarray:
        found: np.ndarray = array.memory.numpy().view(array.layout.dtype)
        return found.reshape(array.layout.shape)

    def owns(self, array: Any) -> bool:
        return isinstance(array, Held)

    def wait(self, arrays: list[Any]) -> None:
        pass


def window(memory: torch.Tensor, view: View, offset: int) -> torch.Tensor:
    """The elements of ``view`` over ``memory``, which it shares."""
    dtype = getattr(torch, view.dtype)
    if view.numel == 0:
        return torch.empty(view.shape, dtype=dtype)
    return memory.view(dtype).as_strided(view.shape, view.strides, offset)


def zeros(layout: Layout) -> torch.Tensor:
    return torch.zeros(layout.nbytes, dtype=torch.uint8)


def run(node: Node, values: dict[int, Held], words: np.ndarray) -> None:
    def word(place: int | None, number: Any) -> Any:
        slot = node.slot_of(place)
        kind = np.float64 if isinstance(number, float) else np.int64
        return number if slot is None else words[slot : slot + 1].view(kind)[0].item()

    def resolve(value: Any) -> Any:
        if isinstance(value, TensorArg):
            operand = node.operands[value.index]
            held = values.get(operand.value)  # none: memory that nothing was written to
            memory = zeros(operand.layout) if held is None else held.memory
            return window(memory, operand.view, word(operand.place, operand.view.offset)).clone()
        if isinstance(value, HostArg):
            number = torch.tensor(word(value.place, value.number))
            return number.item() if value.wrapped else number.to(getattr(torch, value.dtype))
        if isinstance(value, NumberArg):
            return word(value.place, value.number)
        if isinstance(value, DtypeArg):
            return getattr(torch, value.name)
        return [resolve(item) for item in value] if isinstance(value, tuple) else value

    if node.random is not None:
        torch.manual_seed(hash(words[node.random : node.random + 2].tobytes().hex()) % 2**63)
    positional, keyword = bind(node)
    kernel: Callable[..., Any] = find_overload(node.target)
    results = kernel(*map(resolve, positional), **{n: resolve(v) for n, v in keyword.items()})
    found = [*results] if isinstance(results, (tuple, list)) else [results]
    for slot, result in zip(node.slots, found, strict=True):
        if slot is None:
            continue
        made: Any = (*node.outputs, *node.writes)[slot]
        memory, offset = zeros(made.layout), made.view.offset
        if slot >= len(node.outputs):  # a write: the rest of the buffer stays
            target = node.operands[made.operand]
            offset = word(target.place, offset)
            if target.value in values:
                memory = values[target.value].memory.clone()
        window(memory, made.view, offset).copy_(result)
        values[made.value] = Held(memory, made.layout)
