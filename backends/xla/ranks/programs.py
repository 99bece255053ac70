"""Collectives as SPMD programs: every rank runs the same one on its own shard.

A program takes a rank's sources and returns what every target of any rank is to be, all of them
flat, for ranks may see the same elements in other shapes; who has no such target drops it.
Reductions that XLA lacks are gathered and reduced by each rank itself, in the order of the ranks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import jax
import jax.numpy as jnp
from jax import lax

AXIS: Final = "ranks"
Array = jax.Array


@dataclass(frozen=True, slots=True)
class Form:
    """What a program is made for: alike on all ranks.

    Attributes:
        kind: c10d's name of the collective, ``all_reduce`` and so on.
        reduction: ``sum``, ``avg``, ``product``, ``min``, ``max``, ``band``, ``bor`` or ``bxor``.
        root: the rank that has the sources or the targets; -1 where all have.
        ranks: how many there are.
        parts: how many tensors a rank's part is given as: one a rank, or one for all.
        sources: elements of each source, of the root's where only that has any.
        dtype: of all of them.
        split_sums: a reduction's shares are exchanged and added up by each rank, not by XLA.
        members: which ranks of a joined step are this rank's group, in order; none: all are.
        groups: every such group of the joined step, each rank in one; none: all are one.
        rows: sources are not flat: they are gathered, or scattered, along their first dimension.
    """

    kind: str
    reduction: str
    root: int
    ranks: int
    parts: int
    sources: tuple[int, ...]
    dtype: str
    split_sums: bool = False
    members: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    rows: bool = False


def program(form: Form) -> Callable[..., list[Array]]:
    """The function of one rank's flat sources; runs under ``shard_map`` over ``AXIS``."""
    return functools.partial((_OF_ROWS if form.rows else _KINDS)[form.kind], form)


def _groups(form: Form) -> list[list[int]] | None:
    """The groups as JAX takes them; ``None`` where there is one."""
    return [list(group) for group in form.groups] or None


def _own_rank(form: Form) -> Array:
    """This rank's number in its group."""
    if not form.groups:
        return lax.axis_index(AXIS)
    places = {rank: at for group in form.groups for at, rank in enumerate(group)}
    table = [places[rank] for rank in range(len(places))]
    return jnp.asarray(table, jnp.int32)[lax.axis_index(AXIS)]


def _everybodys(form: Form, value: Array) -> Array:
    """All ranks' elements, of shape ``[ranks, elements]``."""
    rows: Array = lax.all_gather(value, AXIS, axis_index_groups=_groups(form))
    return rows


def _reduced(form: Form, rows: Array) -> Array:
    """Rows, one a rank, reduced to one in its own dtype."""
    dtype = rows.dtype
    if dtype == jnp.bool_:
        if form.reduction == "bxor":
            return _folded(jnp.logical_xor, rows)
        return jnp.any(rows, 0) if form.reduction in ("sum", "max", "bor") else jnp.all(rows, 0)
    if form.reduction in ("sum", "avg"):
        return _averaged(form, jnp.sum(rows, axis=0, dtype=dtype))
    return _folded(_PAIRS[form.reduction], rows)


def _folded(pair: Callable[[Array, Array], Array], rows: Array) -> Array:
    result = rows[0]
    for row in rows[1:]:
        result = pair(result, row)
    return result


def _averaged(form: Form, total: Array) -> Array:
    if form.reduction != "avg":
        return total
    if jnp.issubdtype(total.dtype, jnp.integer):
        return lax.div(total, jnp.asarray(form.ranks, total.dtype))  # towards zero
    return (total / form.ranks).astype(total.dtype)


_PAIRS: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "product": jnp.multiply,
    "min": jnp.minimum,
    "max": jnp.maximum,
    "band": jnp.bitwise_and,
    "bor": jnp.bitwise_or,
    "bxor": jnp.bitwise_xor,
}
_OF_XLA: Final[dict[str, Callable[..., Array]]] = {
    "sum": lax.psum,
    "avg": lax.psum,
    "min": lax.pmin,
    "max": lax.pmax,
}


def _all_reduce(form: Form, *sources: Array) -> list[Array]:
    return [_reduced_everywhere(form, source) for source in sources]


def _reduced_everywhere(form: Form, source: Array) -> Array:
    known = _OF_XLA.get(form.reduction)
    if known is None or source.dtype == jnp.bool_:
        return _reduced(form, _everybodys(form, source))
    return _averaged(form, known(source, AXIS, axis_index_groups=_groups(form)))


def _broadcast(form: Form, *sources: Array) -> list[Array]:
    """A sum of the root's bits and zeros: what XLA moves without gathering it n times."""
    mine = _own_rank(form) == form.root
    found = []
    for source in sources:
        bits = _bits(source)
        if bits is None:
            found.append(_everybodys(form, source)[form.root])
            continue
        shares = jnp.where(mine, bits, jnp.zeros_like(bits))
        sent = lax.psum(shares, AXIS, axis_index_groups=_groups(form))
        found.append(_from_bits(sent, source.dtype))
    return found


def _bits(value: Array) -> Array | None:
    """The same bits as whole numbers; ``None`` for complex ones.

    64 bits are two numbers, in a last dimension: the TPU's compiler sums no pairs of halves.
    """
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        return None
    if value.dtype == jnp.bool_:
        return value.astype(jnp.uint8)
    return lax.bitcast_convert_type(value, f"uint{min(8 * value.dtype.itemsize, 32)}")


def _from_bits(bits: Array, dtype: jax.typing.DTypeLike) -> Array:
    if dtype == jnp.bool_:
        return bits.astype(jnp.bool_)
    return lax.bitcast_convert_type(bits, dtype)


def _all_gather(form: Form, *sources: Array) -> list[Array]:
    found: list[Array] = []
    for source in sources:
        rows = _everybodys(form, source)
        found += [rows.reshape(-1)] if form.parts == 1 else list(rows)
    return found


def _scatter(form: Form, *sources: Array) -> list[Array]:
    rows = _exchanged(form, jnp.stack(sources))
    return [rows[form.root]]


def _exchanged(form: Form, rows: Array) -> Array:
    """Row r of this rank goes to rank r: what comes back is each rank's row for this one."""
    found: Array = lax.all_to_all(
        rows, AXIS, split_axis=0, concat_axis=0, tiled=True, axis_index_groups=_groups(form)
    )
    return found


def _reduce_scatter(form: Form, *sources: Array) -> list[Array]:
    found = []
    for at in range(0, len(sources), form.parts):
        rows = jnp.concatenate(sources[at : at + form.parts]).reshape(form.ranks, -1)
        if form.reduction in ("sum", "avg") and not form.split_sums and rows.dtype != jnp.bool_:
            summed = lax.psum_scatter(
                rows, AXIS, scatter_dimension=0, axis_index_groups=_groups(form)
            )
            share = _averaged(form, summed)
        else:
            share = _reduced(form, _exchanged(form, rows))
        found.append(share)
    return found


def _all_to_all(form: Form, *sources: Array) -> list[Array]:
    """A row for each rank, all as long as the longest: who asked cuts them."""
    return [_exchanged(form, sources[0].reshape(form.ranks, -1)).reshape(-1)]


def _gather_rows(form: Form, *sources: Array) -> list[Array]:
    groups = _groups(form)
    return [lax.all_gather(one, AXIS, axis_index_groups=groups, tiled=True) for one in sources]


def _scatter_rows(form: Form, *sources: Array) -> list[Array]:
    if form.reduction not in ("sum", "avg") or form.split_sums or form.dtype == "bool":
        flat = _reduce_scatter(form, *(one.reshape(-1) for one in sources))
        return [share.reshape(-1, *one.shape[1:]) for share, one in zip(flat, sources, strict=True)]
    found = []
    for one in sources:
        summed = lax.psum_scatter(
            one, AXIS, scatter_dimension=0, axis_index_groups=_groups(form), tiled=True
        )
        found.append(_averaged(form, summed))
    return found


_OF_ROWS: Final[dict[str, Callable[..., list[Array]]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _gather_rows,
    "reduce_scatter": _scatter_rows,
}


def rows_of(form: Form, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a form of ``rows`` takes an array: its own, or flat where the ranks do not
    divide its first dimension but have all of its elements between them."""
    whole = form.kind != "reduce_scatter" or not shape or shape[0] % form.ranks == 0
    return (shape or (1,)) if whole else (math.prod(shape),)


def groups_of(members: tuple[int, ...], ranks: int) -> tuple[tuple[int, ...], ...]:
    """All groups of the kind of which ``members``, rank 0's, are one: its translates.

    So a mesh of rank numbers in rows has them, along any of its dimensions. Empty where the members
    are all ranks; raises ``ValueError`` where the translates do not tile them.
    """
    if len(members) == ranks:
        return ()
    left = set(range(ranks))
    groups: list[tuple[int, ...]] = []
    while left:
        first = min(left)
        group = tuple(first + member - members[0] for member in members)
        if not left.issuperset(group):
            raise ValueError(f"the ranks {list(members)} are no part of a mesh of {ranks}")
        left.difference_update(group)
        groups.append(group)
    return tuple(groups)


_KINDS: Final[dict[str, Callable[..., list[Array]]]] = {
    "all_reduce": _all_reduce,
    "reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _all_gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
