"""Whether all ranks have captured one program: digests are compared, and only where they differ,
the programs themselves, up to the first place at which one rank has something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch.distributed as dist

from fuse.backends.base import Chunk
from fuse.engine.executables import program_fields
from fuse.errors import FuseError, describe

Place = tuple[str, str]
"""What is compared, and how it is shown; lines of source are in the second alone."""
_ENDED: Place = ("", "nothing: its step has ended")


def digest(program: Any) -> str:
    """Equal for programs that all ranks may run as one; ``program`` is a ``Joined``."""
    found = hashlib.sha256()
    for text, _ in places(program):
        found.update(text.encode() + b"\n")
    return found.hexdigest()


def places(program: Any) -> Iterator[Place]:
    """A program's operations and collectives, in order, and what flows between them."""
    for part in program.parts:
        what = part.what
        if isinstance(what, Chunk):
            fields = program_fields(what)
            lines = fields.pop("program").splitlines()
            for line, node in zip(lines, what.nodes, strict=True):
                yield line, f"{node}    # {node.source}"
            yield repr(fields), f"a chunk of {len(lines)} operations that takes {fields['inputs']}"
        else:
            yield repr(what), str(what)
        flow = (part.reads, part.makes, part.shapes)
        yield repr(flow), f"reads {list(part.reads)} of the step's values, makes {list(part.makes)}"
    ends = (program.inputs, program.outputs, program.shapes)
    yield repr(ends), f"{len(program.inputs)} arrays in, {len(program.outputs)} out"


def agree(program: Any, name: str, group: dist.ProcessGroup | None) -> None:
    """Compare ``name``, the program's digest, over the group; a ``FuseError`` on every rank where
    one has another. A rank outside the group has nothing to agree on, as in PyTorch's collectives.
    """
    if dist.get_world_size(group) < 0:
        return
    digests: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(digests, name, group=group)
    if len(set(digests)) == 1:
        return
    everybodys: list[Any] = [None] * len(digests)
    dist.all_gather_object(everybodys, list(places(program)), group=group)
    ranks = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
    raise FuseError(difference(everybodys, ranks))


def difference(everybodys: Sequence[Sequence[Place]], ranks: Sequence[int]) -> str:
    """The first place at which programs differ, and who has what there; ``ranks`` are their
    numbers.
    """
    for at, row in enumerate(zip_longest(*everybodys, fillvalue=_ENDED)):
        others = [rank for rank, (text, _) in zip(ranks, row, strict=True) if text != row[0][0]]
        if others:
            shown = [f"  rank {rank}: {one}" for rank, (_, one) in zip(ranks, row, strict=True)]
            head = f"rank{'s'[: len(others) - 1]} {', '.join(map(str, others))} and rank {ranks[0]}"
            text = describe(
                f"{head} have captured different steps, which cannot be one program: "
                f"they differ first in place {at}",
                hint="have all ranks do the same in the step, or run it as it is, unjoined",
            )
            first, _, rest = text.partition("\n")
            return "\n".join([first, *shown, rest])
    raise AssertionError("equal programs with different digests")
