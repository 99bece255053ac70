"""Runs a chunk that has no executable yet, operation by operation, with what exists.

PyTorch's CPU kernels compute most operations, on the arrays' own memory where the backend
keeps them in the host's. What they cannot compute as the device does (random numbers, which
come from the device's own generator; operators without a CPU kernel) the NumPy backend's
rules compute.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from fuse.backends.base import Backend, Chunk
from fuse.backends.registry import get_backend
from fuse.backends.subnormals import FlushedSubnormals
from fuse.engine.pool import Job
from fuse.trace.evaluate import Evaluator, HostScalars
from fuse.trace.functional import MARK, find_overload, is_written, schema_of
from fuse.trace.node import HostArg, Leaf, Node, Operand, Output, Write
from fuse.trace.operators import operator
from fuse.trace.promote import promoted_operands, result_type
from fuse.trace.spec import ITEMSIZE, View

_KERNELS = (
    "CPU",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
STEPS = ("_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad")
"""Optimizers' steps, whose CPU kernels do not train in half precision."""
Values = dict[int, np.ndarray]


class Uncompiled:
    """Runs chunks of one backend's arrays without compiling anything.

    Each on a thread of its own: modes, autocast and transforms of the thread that cut the trace
    are no business of kernels that run later than their calls. The thread ends with the chunk:
    where threads of OpenMP's teams outnumber the cores, those of every team sleep between two
    kernels, and all that PyTorch computes on the CPU takes twice as long (docs/decisions.md).
    """

    def refusal(self, chunk: Chunk) -> str | None:
        """Why the chunk can only run compiled, or ``None``."""
        for node in chunk.nodes:
            reason = lack(node)
            if reason is not None:
                return f"aten::{node.op} has no CPU kernel here, and NumPy says: {reason}"
        return None

    def run(
        self, backend: Backend, chunk: Chunk, scalars: bytes, arrays: Sequence[Any], device: int
    ) -> list[Any]:
        """The chunk's outputs as arrays of a device of ``backend``; ``arrays`` are as before, none
        donated."""
        job = Job(lambda: _run(backend, chunk, scalars, arrays, device))
        try:
            # A daemon, for the interpreter must not wait where an interrupt cuts its start off.
            threading.Thread(target=job.run, name="fuse-uncompiled", daemon=True).start()
        except RuntimeError:  # the interpreter is shutting down and starts no threads
            job.run()
        return job.result()


def _kernels_name(target: str) -> str:
    """The overload whose CPU kernel makes the values of a functional overload."""
    # What fills memory is recorded in place: it reads nothing of what was there.
    return target.replace("convolution_overrideable", "convolution").replace("fill_.", "fill.")


@cache
def _computes(target: str) -> bool:
    """Whether a CPU kernel computes a functional overload from values alone."""
    if MARK in target:
        return False  # a JAX function: NumPy's backend runs it
    target = _kernels_name(target)
    name = target if "::" in target else f"aten::{target}"
    schema = schema_of(target)
    special = operator(target)
    if special.helpers_differ or special.undefined_rows:
        return False
    if special.writes or any(map(is_written, schema.arguments)):
        return False  # it writes to memory that is not its own here
    if "overrideable" in name:  # registered, but only to say that a device must override it
        return False
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in _KERNELS)


def lack(node: Node) -> str | None:
    """Why neither a CPU kernel nor the NumPy backend computes the node, or ``None``."""
    return None if has_kernel(node) else get_backend("numpy").reject(node)


def has_kernel(node: Node) -> bool:
    """Whether PyTorch's CPU kernels compute the node as the device does."""
    return node.blocks == 0 and _computes(node.target) and not _steps_in_half(node)


def _steps_in_half(node: Node) -> bool:
    """Whether its CPU kernel, an optimizer's, would leave the parameters as they are."""
    return node.target.partition(".")[0] in STEPS and any(
        operand.layout.dtype not in ("float32", "float64") for operand in node.operands
    )


def _run(
    backend: Backend, chunk: Chunk, scalars: bytes, arrays: Sequence[Any], device: int
) -> list[Any]:
    pairs = zip(chunk.inputs, arrays, strict=True)
    values: Values = {leaf.value: np.asarray(backend.get(array)) for leaf, array in pairs}
    numbers = HostScalars(scalars)
    with torch.no_grad(), FlushedSubnormals():
        for node in chunk.nodes:
            try:
                if has_kernel(node):
                    Kernel(node, values, numbers).evaluate()
                    continue
            except NotImplementedError:
                pass  # its kernel does not take these dtypes
            _run_rule(node, values, scalars)
    return [backend.put(values[value], device) for value in chunk.outputs]


def _run_rule(node: Node, values: Values, scalars: bytes) -> None:
    numpy = get_backend("numpy")
    read = dict.fromkeys(operand.value for operand in node.operands if operand.value in values)
    layouts = {operand.value: operand.layout for operand in node.operands}
    inputs = tuple(Leaf(value, layouts[value]) for value in read)
    made = tuple(node.results())
    chunk = Chunk((node,), inputs, made, (), len(scalars) // 8)
    found = numpy.execute(numpy.compile(chunk), scalars, [values[value] for value in read])
    values |= zip(made, found, strict=True)


class Kernel(Evaluator[np.ndarray]):
    """Evaluates a node by PyTorch's CPU kernel of its target."""

    for_kernel = True

    def tensor(self, operand: Operand) -> torch.Tensor:
        """The operand's view, over the memory of its value."""
        return read(self.values.get(operand.value), operand.view, self.offset(operand))

    def host_tensor(self, value: HostArg) -> torch.Tensor:
        """A 0-d tensor; of a wrapped number, one that gives way to the tensors beside it."""
        plain = torch.tensor(self.number(value), dtype=getattr(torch, value.dtype))
        return plain.to(_dtype_beside(self.node)) if value.wrapped else plain

    def compute(self, positional: list[Any], keyword: dict[str, Any]) -> Any:
        """What the kernel returns."""
        return find_overload(_kernels_name(self.node.target))(*positional, **keyword)

    def write(
        self, old: np.ndarray | None, part: Output | Write, result: Any, offset: int | None
    ) -> np.ndarray:
        """A fresh array: the bytes of ``old`` or zeros, the view's elements replaced."""
        layout, view = part.layout, part.view
        memory = np.zeros(layout.nbytes, np.uint8)
        if old is not None:
            kept = min(old.nbytes, memory.size)
            memory[:kept] = old.reshape(-1).view(np.uint8)[:kept]
        if view.numel:
            flat = torch.from_numpy(memory).view(getattr(torch, view.dtype))
            start = view.offset if offset is None else offset
            window = flat.as_strided(view.shape, view.strides, start)
            window.zero_() if result is None else window.copy_(result)
        return memory.view(layout.dtype).reshape(layout.shape)


def _dtype_beside(node: Node) -> torch.dtype:
    """What a wrapped number becomes: it gives way to the tensors beside it; a 0-d tensor would not.

    Not where integers make floating-point results, as in divisions, which are computed in these:
    300 is no uint8.
    """
    promoted: torch.dtype = getattr(torch, str(result_type(promoted_operands(node))))
    made: list[torch.dtype] = [getattr(torch, output.view.dtype) for output in node.outputs]
    if (
        made
        and made[0].is_floating_point
        and not (promoted.is_floating_point or promoted.is_complex)
    ):
        return made[0]
    return promoted


class _Memory:
    """An array's memory as one that may be written to: PyTorch warns of any other.

    No kernel here writes to it. NumPy keeps this object, and so the array, alive.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def read(array: np.ndarray | None, view: View, offset: int | None) -> torch.Tensor:
    """A tensor of ``view``, or at ``offset``, over an array's memory; no array is zeros."""
    dtype = getattr(torch, view.dtype)
    if array is None or view.numel == 0:
        return torch.zeros(view.shape, dtype=dtype)
    start = view.offset if offset is None else offset
    wanted = (start + view.last - view.offset + 1) * ITEMSIZE[view.dtype]
    return _tensor(array, wanted, dtype).as_strided(view.shape, view.strides, start)


def _tensor(array: np.ndarray, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
    """A flat tensor of at least ``nbytes`` over an array's memory, or over a copy with zeros."""
    memory = array.reshape(-1).view(np.uint8)
    if nbytes > memory.size:  # a storage that has grown
        memory = np.concatenate([memory, np.zeros(nbytes - memory.size, np.uint8)])
    whole = memory.size - memory.size % dtype.itemsize
    return torch.from_numpy(np.asarray(_Memory(memory[:whole]))).view(dtype)
