"""A plan as bytes: indices into the trace that it is a plan of, as JSON.

Nothing of the trace is stored. The one who reads a plan has recorded the trace, and every
index is checked against it; a plan of another trace does not pass.
"""

from __future__ import annotations

import json
from typing import Any

from fuse.errors import VerifyError
from fuse.plan.check import check_plan
from fuse.plan.plan import Plan, PlannedChunk
from fuse.plan.planner import prepared
from fuse.plan.scalars import compact_scalars
from fuse.trace.borders import Borders
from fuse.trace.node import Leaf, Trace
from fuse.trace.spec import Layout

FORMAT = 1
_FIELDS = {"format": int, "live": list, "donated": list, "chunks": list, "decisions": list}
_LISTS = ("nodes", "inputs", "outputs", "donated")


def encode(plan: Plan, names: tuple[tuple[str, str], ...], device: Borders) -> bytes:
    """The bytes of ``plan``, which was made for ``device``.

    ``names`` are digest and label of each chunk's executable.
    """
    # By a value it makes: a chunk's nodes are these with their slots renumbered.
    nodes = prepared(plan.trace, plan.live, device)
    places = {value: place for place, node in enumerate(nodes) for value in node.results()}
    chunks = [
        {
            "nodes": [places[next(node.results())] for node in piece.nodes],
            "inputs": [leaf.value for leaf in piece.inputs],
            "outputs": piece.outputs,
            "donated": piece.donated,
            "executable": name,
        }
        for piece, name in zip(plan.chunks, names, strict=True)
    ]
    document = {
        "format": FORMAT,
        "live": plan.live,
        "donated": plan.donated,
        "chunks": chunks,
        "decisions": plan.decisions,
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def decode(
    data: bytes, trace: Trace, live: tuple[int, ...], donatable: tuple[int, ...], device: Borders
) -> tuple[Plan, tuple[tuple[str, str], ...]]:
    """The plan in ``data`` for this trace, and the names of its chunks' executables.

    Raises ``VerifyError`` or ``ValueError`` for bytes that are no plan of ``trace`` that leaves
    ``live`` alive and consumes leaves in ``donatable`` only.
    """
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise ValueError("what is stored is no plan") from error
    _check_shape(document)
    layouts, known = trace.layouts(), prepared(trace, live, device)
    chunks, names = [], []
    for raw in document["chunks"]:
        if any(place >= len(known) for place in raw["nodes"]):
            raise VerifyError(f"a chunk has operations beyond the trace's {len(known)}")
        nodes, scalars = compact_scalars(tuple(known[place] for place in raw["nodes"]))
        chunks.append(
            PlannedChunk(
                nodes,
                tuple(_leaf(value, layouts) for value in raw["inputs"]),
                tuple(raw["outputs"]),
                tuple(raw["donated"]),
                scalars,
            )
        )
        names.append((raw["executable"][0], raw["executable"][1]))
    if tuple(document["live"]) != live:
        raise VerifyError(f"the plan leaves {document['live']} alive, not {live}")
    plan = Plan(
        trace, live, tuple(document["donated"]), tuple(chunks), tuple(document["decisions"])
    )
    return check_plan(plan, donatable), tuple(names)


def _leaf(value: int, layouts: dict[int, Layout]) -> Leaf:
    if value not in layouts:
        raise VerifyError(f"a chunk reads %{value}, which the trace does not know")
    return Leaf(value, layouts[value])


def _check_shape(document: Any) -> None:
    """Every field is there, of its type, and every index is a natural number."""
    if not isinstance(document, dict) or document.keys() != _FIELDS.keys():
        raise ValueError("what is stored is no plan")
    for name, kind in _FIELDS.items():
        if type(document[name]) is not kind:
            raise ValueError(f"a stored plan's {name} is a {type(document[name]).__name__}")
    if document["format"] != FORMAT:
        raise ValueError(f"the plan has format {document['format']}; this version reads {FORMAT}")
    _check_indices(document, ("live", "donated"))
    if any(type(text) is not str for text in document["decisions"]):
        raise ValueError("a stored plan's decisions are no texts")
    for raw in document["chunks"]:
        if not isinstance(raw, dict) or raw.keys() != {*_LISTS, "executable"}:
            raise ValueError("a stored plan's chunk has other fields")
        _check_indices(raw, _LISTS)
        name = raw["executable"]
        if not isinstance(name, list) or [type(text) for text in name] != [str, str]:
            raise ValueError(f"{name!r} names no executable")


def _check_indices(raw: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        # ``type``, for True and 1.0 equal indices and are none.
        if type(raw[name]) is not list or any(
            type(item) is not int or item < 0 for item in raw[name]
        ):
            raise ValueError(f"a stored plan's {name} are no indices")
