"""The NumPy backend below its rules: views, chunks, and what the engine asks of a backend."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import fuse.backends.xla.rules  # noqa: F401  (fills its table)
from fuse.backends.base import Chunk
from fuse.backends.numpy import views
from fuse.backends.numpy.backend import create
from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RULES, rule
from fuse.backends.xla.rules.registry import RULES as XLA_RULES
from fuse.errors import VerifyError
from fuse.trace.evaluate import HostScalars
from fuse.trace.node import Leaf, Node, NumberArg, Operand, Output, TensorArg, Write
from fuse.trace.spec import Layout, View

BASE = np.arange(24, dtype=np.float32).reshape(4, 6)
LAYOUT = Layout("float32", (4, 6))
MEMORY = torch.arange(24.0)

VIEWS = [
    View("float32", (4, 6), (6, 1)),
    View("float32", (6, 4), (1, 6)),
    View("float32", (2, 3), (6, 2), 7),
    View("float32", (5, 4), (4, 1), 2),
    View("float32", (3, 0, 2), (2, 2, 1), 5),
    View("float32", (), (), 23),
    View("float32", (24,), (1,)),
]
OVERLAPPING = [View("float32", (3, 4), (0, 1), 6), View("float32", (5, 8), (4, 1))]


# --- views -------------------------------------------------------------------


@pytest.mark.parametrize("view", [*VIEWS, *OVERLAPPING], ids=str)
def test_reading_is_as_strided(view: View) -> None:
    found = views.read(BASE, view)
    expected = MEMORY.as_strided(view.shape, view.strides, view.offset)
    assert np.array_equal(found, expected.numpy())
    assert not found.flags.writeable


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_writing_replaces_the_view_and_nothing_else(view: View) -> None:
    value = np.arange(-view.numel, 0, dtype=np.float32).reshape(view.shape)
    expected = MEMORY.clone()
    expected.as_strided(view.shape, view.strides, view.offset).copy_(torch.from_numpy(value))
    found = views.write(BASE, LAYOUT, view, value)
    assert np.array_equal(found.reshape(-1), expected.numpy())
    assert BASE[0, 1] == 1
    assert found.flags.c_contiguous


def test_an_offset_may_be_given_apart() -> None:
    view = View("float32", (3,), (1,))
    assert views.read(BASE, view, 20).tolist() == [20, 21, 22]
    assert views.write(BASE, LAYOUT, view, np.float32([7, 8, 9]), 21)[3, 3:].tolist() == [7, 8, 9]


def test_bytes_may_be_read_as_another_dtype() -> None:
    halves = views.read(BASE, View("bfloat16", (48,), (1,)))
    expected = MEMORY.view(torch.bfloat16).view(torch.int16).numpy()
    assert np.array_equal(halves.view(np.int16), expected)


def test_memory_nobody_wrote_is_zero() -> None:
    view = View("float32", (2,), (1,), 3)
    assert views.write(None, Layout("float32", (6,)), view, np.float32([1, 2])).tolist() == [
        *(0, 0, 0, 1),
        *(2, 0),
    ]


def test_a_grown_storage_ends_in_zeros() -> None:
    grown = View("float32", (26,), (1,))
    assert views.read(BASE, grown)[24:].tolist() == [0, 0]
    written = views.write(BASE, Layout("float32", (30,)), View("float32", (1,), (1,), 29), 5.0)
    assert written[[23, 24, 29]].tolist() == [23, 0, 5]


def test_no_write_leaves_its_buffer() -> None:
    with pytest.raises((TypeError, ValueError), match="buffer"):
        views.write(BASE, LAYOUT, View("float32", (4,), (1,), 22), np.zeros(4, np.float32))


# --- numbers -----------------------------------------------------------------


def test_words_are_read_as_what_they_are() -> None:
    words = np.array([2**64 - 1, 0], np.uint64)
    words[1:] = np.array([0.25]).view(np.uint64)
    scalars = HostScalars(words.tobytes())
    assert (scalars.unsigned(0), scalars.integer(0)) == (2**64 - 1, -1)
    assert scalars.number(1, like=1.0) == 0.25


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.int64, torch.complex64])
@pytest.mark.parametrize("target", ["bool", "int8", "uint8", "int64", "float16"])
def test_conversion_is_that_of_pytorch(source: torch.dtype, target: str) -> None:
    x = torch.tensor([0.0, -1.5, 300.75, 70000.0, -2.0]).to(source)
    with np.errstate(all="ignore"):
        found = convert(x.numpy(), target)
    with warnings.catch_warnings(action="ignore"):  # of a dropped imaginary part
        assert torch.equal(torch.from_numpy(found), x.to(getattr(torch, target)))


# --- chunks ------------------------------------------------------------------


def operand(value: int, *shape: int, place: int = 9) -> Operand:
    strides = tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
    return Operand(value, View("float32", shape, strides), Layout("float32", shape), place)


def made(value: int, *shape: int) -> Output:
    found = operand(value, *shape)
    return Output(value, found.view, found.layout)


def add_one(source: int, value: int) -> Node:
    """``value = source + 1 * number``, the number in word 0."""
    args = (TensorArg(0), NumberArg(0.0, 1), NumberArg(1, 2))
    return Node(
        "add.Scalar", "add.Scalar", args, (operand(source, 3),), (made(value, 3),), (), (0,),
        dynamic=((1, 0),),
    )  # fmt: skip


def test_a_chunk_runs_node_after_node() -> None:
    backend = create()
    layout = Layout("float32", (3,))
    zero = Node(
        "zero_", "zero_", (TensorArg(0),),
        (Operand(1, View("float32", (1,), (1,), 1), layout, 5),), (),
        (Write(0, 2, layout, View("float32", (1,), (1,), 1)),), (0,),
    )  # fmt: skip
    chunk = Chunk((add_one(0, 1), zero), (Leaf(0, layout),), (1, 2), (0,), 1)
    x = backend.put(np.float32([1, 2, 3]), 0)
    words = np.array([0.5]).tobytes()
    one, two = backend.execute(backend.compile(chunk), words, [x])
    assert one.tolist() == [1.5, 2.5, 3.5]
    assert two.tolist() == [1.5, 0, 3.5]
    assert x.tolist() == [1, 2, 3]  # donated, and still not written to
    assert not any(np.shares_memory(a, b) for a, b in ((x, one), (x, two), (one, two)))


def test_a_result_of_the_wrong_shape_is_an_error() -> None:
    wrong = Node("neg", "neg", (TensorArg(0),), (operand(0, 3),), (made(1, 2),), (), (0,))
    chunk = Chunk((wrong,), (Leaf(0, Layout("float32", (3,))),), (1,), (), 0)
    with pytest.raises(VerifyError, match=r"neg returned shape \(3,\), not \(2,\)"):
        create().execute(chunk, b"", [np.zeros(3, np.float32)])


def test_a_gradient_that_is_not_asked_for_is_zeros() -> None:
    """Where autograd's mask leaves the input out, which stands in the trace all the same."""
    name, grad = "native_layer_norm_backward", np.float32([[1, 2, 3], [4, 5, 6]])
    arguments = (*map(TensorArg, (0, 1)), (3,), *map(TensorArg, (2, 3)), None, None)
    operands = (operand(0, 2, 3), operand(1, 2, 3), operand(2, 2, 1), operand(3, 2, 1))
    node = Node(
        name, name, (*arguments, (False, False, True)), operands,
        (made(4, 2, 3), made(5, 3)), (), (0, None, 1),
    )  # fmt: skip
    leaves = tuple(Leaf(at, one.layout) for at, one in enumerate(operands))
    chunk, column = Chunk((node,), leaves, (4, 5), (), 0), np.ones((2, 1), np.float32)
    backend = create()
    through, bias = backend.execute(backend.compile(chunk), b"", [grad, grad, column, column])
    assert through.tolist() == [[0, 0, 0], [0, 0, 0]] and bias.tolist() == [5, 7, 9]


# --- the interface -----------------------------------------------------------


def test_arrays_are_copied_in_and_read_only_out() -> None:
    backend = create()
    data = np.float32([1, 2])
    array = backend.put(data, 0)
    data += 1
    found = backend.get(array)
    assert found.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        found += 1
    assert backend.owns(array)
    assert not backend.owns(torch.ones(2))
    backend.wait([array])


def test_there_is_one_backend_of_one_device_without_stored_executables() -> None:
    backend = create()
    assert backend is create()
    assert (backend.name, backend.device_count()) == ("numpy", 1)
    assert backend.shares_host_memory()
    assert set(backend.fingerprint()) == {"backend", "numpy", "ml_dtypes"}
    assert backend.dump(object()) is None
    with pytest.raises(ValueError, match="no executables"):
        backend.load(b"")


def test_nodes_are_rejected_with_a_reason() -> None:
    backend = create()
    good = add_one(0, 1)
    assert backend.reject(good) is None
    assert backend.static_places(good) == ()
    complex_sort = Node(
        "sort", "sort", (TensorArg(0), -1, False),
        (Operand(0, View("complex64", (3,), (1,)), Layout("complex64", (3,)), 9),),
        (made(1, 3), made(2, 3)), (), (0, 1),
    )  # fmt: skip
    assert backend.reject(complex_sort) == "sort: complex numbers have no order"
    unknown = Node("_nested_tensor_size", "_nested_tensor_size", (TensorArg(0),), (operand(0, 3),),
                   (made(1, 3),), (), (0,))  # fmt: skip
    assert backend.reject(unknown) is not None


def test_a_decomposed_node_runs_by_the_rules_of_its_parts() -> None:
    backend = create()
    node = Node("square", "square", (TensorArg(0),), (operand(0, 3),), (made(1, 3),), (), (0,))
    assert not backend.has_rule("square")
    assert backend.reject(node) is None
    chunk = Chunk((node,), (Leaf(0, Layout("float32", (3,))),), (1,), (), 0)
    (result,) = backend.execute(chunk, b"", [np.float32([1, 2, -3])])
    assert result.tolist() == [1, 4, 9]


def test_a_second_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="add.Tensor has two NumPy rules"):
        rule("add.Tensor")(lambda ctx: None)


def test_numpy_has_a_rule_for_every_overload_xla_has() -> None:
    assert set(XLA_RULES) - set(RULES) == set()
