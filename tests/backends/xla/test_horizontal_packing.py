"""Which equal operations on small tensors are done as one, and which arrays go in and out so."""

from __future__ import annotations

import numpy as np
import pytest

from fuse.backends.base import Chunk
from fuse.backends.xla.backend import create
from fuse.backends.xla.horizontal_packing import LARGEST, Group, HorizontalPacking, stacking
from fuse.backends.xla.packed_arrays import RARE, PackedArrays, Row, rows_of
from fuse.backends.xla.schedule import ordered
from fuse.errors import VerifyError
from fuse.plan.planner import plan
from tests.trace.drawing import Drawing

NAMES = "abcd"


def each(lines: str, names: str = NAMES) -> str:
    """The lines once for each name, which takes the place of every star."""
    return "\n".join(line.replace("*", name) for name in names for line in lines.split("; "))


def named(stars: str, names: str = NAMES) -> str:
    return " ".join(star.replace("*", name) for star in stars.split() for name in names)


def found(
    text: str, live: str, donated: str, apart: str = "", sizes: dict[str, int] | None = None
) -> tuple[Drawing, HorizontalPacking]:
    drawing = Drawing(text, sizes=sizes)
    (piece,) = plan(drawing.trace, drawing[live], drawing[donated]).chunks
    positions = {drawing.name(leaf.value): at for at, leaf in enumerate(piece.inputs)}
    alone = tuple(positions[name] for name in apart.split())
    chunk = Chunk(piece.nodes, piece.inputs, piece.outputs, piece.donated, 0, alone)
    return drawing, stacking(chunk, lambda node: node.target not in ("mm", "sum"))


def described(drawing: Drawing, stacks: HorizontalPacking) -> str:
    """Stacks in, operations, stacks out: each group by its results."""

    def names(values: tuple[int, ...]) -> str:
        return "+".join(map(drawing.name, values))

    groups = [names(group.results) for group in stacks.groups]
    lists = (list(map(names, stacks.inputs)), groups, list(map(names, stacks.outputs)))
    return " | ".join(" ".join(sorted(one)) for one in lists)


MOMENTUM = each("x* over m* = mul_(m*, k); n* over x* = add_(x*, g*); q* over p* = add_(p*, n*)")
UPDATE = each("n* over m* = mul_(m*, g*)")
CASES = {
    "parameters and momenta": (
        MOMENTUM, named("n* q*"), named("m* p*"), "",
        "ma+mb+mc+md pa+pb+pc+pd | na+nb+nc+nd qa+qb+qc+qd xa+xb+xc+xd | na+nb+nc+nd qa+qb+qc+qd",
    ),
    "what others read stays apart": (
        MOMENTUM, named("n* q*"), named("m* p*"), named("p*"),
        "ma+mb+mc+md | na+nb+nc+nd xa+xb+xc+xd | na+nb+nc+nd",
    ),
    "one of them that others read keeps all of its list apart": (
        MOMENTUM, named("n* q*"), named("m* p*"), "pb",
        "ma+mb+mc+md | na+nb+nc+nd xa+xb+xc+xd | na+nb+nc+nd",
    ),
    "an old value that is held is no stack": (
        UPDATE, named("n*"), named("m*", "abc"), "", " |  | ",
    ),
    "three are too few": (
        each("n* over m* = mul_(m*, g*)", "abc"), named("n*", "abc"), named("m*", "abc"), "",
        " |  | ",
    ),
    "what is made for the update and kept comes out with it": (
        each("h* = mm(p*, y); q* over p* = add_(p*, h*)"), named("h* q*"), named("p*"), "",
        "pa+pb+pc+pd | qa+qb+qc+qd | ha+hb+hc+hd qa+qb+qc+qd",
    ),
    "of which one is dropped: they go in alone": (
        each("h* = mm(p*, y); q* over p* = add_(p*, h*)"), named("q*") + " ha hb", named("p*"), "",
        "pa+pb+pc+pd | qa+qb+qc+qd | qa+qb+qc+qd",
    ),
    "an inner result of which one is kept is made alone": (
        each("t* = mul(g*, k); q* over p* = add_(p*, t*)"), named("q*") + " ta", named("p*"), "",
        "pa+pb+pc+pd | qa+qb+qc+qd | qa+qb+qc+qd",
    ),
    "results of their own are no reason": (each("r* = mul(g*, k)"), named("r*"), "", "", " |  | "),
    "nor what does not work by element": (
        each("n* over m* = mm_(m*, g*)"), named("n*"), named("m*"), "", " |  | ",
    ),
    "one that is needed sooner is not of the others' kind": (
        each("n* over m* = mul_(m*, g*)") + "\ns = sum(na)\no over nb = mul_(nb, s)",
        named("n*", "acd") + " o s", named("m*"), "", " |  | ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_stacks(name: str):
    text, live, donated, apart, wanted = CASES[name]
    assert described(*found(text, live, donated, apart)) == wanted


def test_only_small_tensors_are_stacked():
    for numbers, stacked in ((LARGEST // 4, True), (LARGEST // 4 + 1, False)):
        sizes = {f"{kind}{name}": numbers for kind in "mgn" for name in NAMES}
        _, stacks = found(UPDATE, named("n*"), named("m*"), sizes=sizes)
        assert bool(stacks.inputs) == stacked


def test_tensors_of_two_sizes_are_two_stacks():
    sizes = {f"{kind}{name}": 9 for kind in "mgn" for name in "efgh"}
    text = each("n* over m* = mul_(m*, g*)", "aebfcgdh")
    drawing, stacks = found(text, named("n*", "abcdefgh"), named("m*", "abcdefgh"), sizes=sizes)
    wanted = "ma+mb+mc+md me+mf+mg+mh | na+nb+nc+nd ne+nf+ng+nh | na+nb+nc+nd ne+nf+ng+nh"
    assert described(drawing, stacks) == wanted


def test_every_step_follows_what_it_reads():
    """Each tensor is read alone as soon as it is made: the reader waits for the group."""
    text = each("n* over m* = mul_(m*, g*); s* = sum(n*); t* = mm(s*, n*)")
    drawing, stacks = found(text, named("n* t*"), named("m*"))
    assert described(drawing, stacks) == "ma+mb+mc+md | na+nb+nc+nd | na+nb+nc+nd"
    (group,) = stacks.groups
    (piece,) = plan(drawing.trace, drawing[named("n* t*")], drawing[named("m*")]).chunks
    order = ordered(Chunk(piece.nodes, piece.inputs, piece.outputs, piece.donated, 0), [group])
    assert order[0] == group
    alone = set(range(12)) - set(group.nodes)
    assert order[1:] == tuple(sorted(alone)), "the chunk's own order"


def test_merged_nodes_that_need_each_other_are_refused():
    drawing = Drawing("b = relu(a)\nc = sum(b)\nd = relu(c)")
    (piece,) = plan(drawing.trace, drawing["d"], ()).chunks
    chunk = Chunk(piece.nodes, piece.inputs, piece.outputs, piece.donated, 0)
    with pytest.raises(VerifyError, match="need each other's results"):
        ordered(chunk, [Group((0, 2), (drawing["a c"],), drawing["b d"])])


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("on_host", [True, False])
def test_rows_and_arrays(dtype: str, on_host: bool):
    """In order, in another, of two stacks, and beside arrays; on the host and by an executable."""
    backend, stacks = create(), PackedArrays(on_host)
    numbers = (np.arange(24).reshape(4, 3, 2) * 2**31).astype(dtype)
    for _ in range(RARE + 2):
        array, other = (backend.put(numbers.copy(), 0) for _ in range(2))
        rows, others = rows_of(array, 4), rows_of(other, 4)
        assert stacks.joined(tuple(rows)) is array
        alone = backend.put(numbers[0].copy(), 0)
        for places, parts in (
            ([3, 2, 1, 0], rows[::-1]),
            ([0, 1, 2], rows[:3]),
            ([0, 1, 2, 3], [*rows[:2], *others[2:]]),
            ([0, 1, 2, 3], [alone, *rows[1:]]),
            ([1, 0, 2, 3], [rows[1], alone, *rows[2:]]),
        ):
            joined = stacks.joined(tuple(parts))
            assert joined is not array
            np.testing.assert_array_equal(backend.get(joined), numbers[places], strict=True)
        for at, row in enumerate(rows):
            taken = stacks.array(row)
            assert type(taken) is not Row
            np.testing.assert_array_equal(backend.get(taken), numbers[at], strict=True)
            assert stacks.array(row) is taken
        assert stacks.array(alone) is alone


def test_a_row_is_an_array_of_the_backend():
    backend = create()
    numbers = np.arange(8, dtype=np.float32).reshape(4, 2)
    row = rows_of(backend.put(numbers, 0), 4)[2]
    assert backend.owns(row)
    backend.wait([row])
    np.testing.assert_array_equal(backend.get(row), numbers[2], strict=True)
    np.testing.assert_array_equal(np.asarray(row, dtype=np.float64), numbers[2])
    scalar = rows_of(backend.put(np.arange(4.0), 0), 4)[3]
    assert backend.get(scalar).shape == ()
