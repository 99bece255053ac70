"""Training by a joined step, for whoever asks for it: a step that has become steady, on which all
ranks have agreed, goes on as one program of all of them, without the user's Python.

Steps are run as always, and captured, until two after another are the same program and what flows
from one to the next is the same: parameters and an optimizer's state from the step before, a batch,
constants. From then on only batches go in and losses come out, until one rank has no more batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from fuse.device import lazy, sharing
from fuse.distributed import agreement, joined, runtime
from fuse.errors import FuseError, describe

PATIENCE = 12
"""Steps within which a step has to become steady."""
Step = Callable[..., torch.Tensor]
"""What trains once: takes a batch's tensors, and returns the loss, a tensor of one element."""
Form = tuple[tuple[tuple[int, ...], torch.dtype, int], ...]
"""What is alike of batches that one program takes: shapes, dtypes, and which are one tensor."""
Link = tuple[str, int]
"""Where an input is from: ``("batch", place)``, ``("state", value of the step before)``, or
``("same", 0)`` for a constant."""


def train(
    step: Step, batches: Iterable[Sequence[torch.Tensor]], state: Iterable[torch.Tensor]
) -> Iterator[float]:
    """Run ``step(*batch)`` for every batch, and give its losses, as a loop of one's own would.

    Every rank of the default group has to call this with batches of the same shapes, whole tensors
    of the device; see ``joined.capture`` for what a step may hold and which settings it needs. When
    one rank has no more batches, or one of another shape, dtype or layout, all run what they still
    have as it is, unjoined.

    Only what changes on every step is seen to change. Once steps are joined, nothing that ``step``
    or the loop's body does on the host, or the body to tensors, has effect before the loop ends: a
    schedule whose first change is yet to come never makes it.

    Args:
        step: trains once and returns the loss, a tensor of one element. While steps are joined, it
            is not called.
        batches: what to call it with: sequences of tensors of the device, which are read only.
        state: tensors that it changes: parameters, buffers, an optimizer's, of any layout. They
            are out of date while steps are joined, and get their values back at the end, written
            in place; others never do.

    Yields:
        The loss of each step, once that has run.

    Raises:
        FuseError: on every rank, where the step of one cannot be joined, or they have captured
            different ones.

    Example:
        ```python
        def step(x, y):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            return loss


        kept = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
        for loss in training.train(step, batches, [*model.parameters(), *kept]):
            print(loss)
        ```
    """
    loop = _Loop(step, list(state))
    left = iter(batches)
    try:
        while True:
            batch = next(left, None)
            joinable, here, steady, fits = _least(
                [not loop.refused, batch is not None, loop.steady, loop.takes(batch)]
            )
            if not joinable:
                _refuse(loop.refused)
            if not here or batch is None or (steady and not fits):
                break
            yield loop.joined(batch) if steady else loop.isolated(batch)
    finally:
        loop.finish()
    if batch is not None:
        yield float(step(*batch))
    for batch in left:
        yield float(step(*batch))


def _least(numbers: Sequence[int]) -> list[int]:
    """The least that any rank says of each."""
    said = torch.tensor([int(number) for number in numbers])
    dist.all_reduce(said, dist.ReduceOp.MIN)
    return said.tolist()


def _refuse(reason: str) -> NoReturn:
    """Raise, on every rank, what any of them has against it."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, reason)
    text = describe(
        "the step cannot be joined",
        hint="change what is named here, or run the steps as they are, without training.train",
    )
    first, _, rest = text.partition("\n")
    raise FuseError(
        "\n".join([first, *(f"  rank {rank}: {one}" for rank, one in enumerate(said) if one), rest])
    )


def _array(tensor: torch.Tensor) -> Any:
    """Its array; ``None`` where a tensor is not the device's, or not all of its memory in order."""
    return lazy.core().share(tensor.detach()) if tensor.device.type == "tpu" else None


def _arrays(tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    """By the identity of the array of each tensor, its place."""
    ours = map(_array, tensors)
    return {id(array): place for place, array in enumerate(ours) if array is not None}


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All memory of a tensor that may be a part of it, or lie there in another order."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0)


def _form(batch: Sequence[torch.Tensor]) -> Form | None:
    """``None`` where a tensor is not whole: its array is more than it, or there is none."""
    arrays = list(map(_array, batch))
    if any(array is None and one.numel() for one, array in zip(batch, arrays, strict=True)):
        return None
    names = list(map(id, arrays))
    firsts = map(names.index, names)
    return tuple((tuple(one.shape), one.dtype, at) for one, at in zip(batch, firsts, strict=True))


def _obstacle(state: Sequence[torch.Tensor]) -> str:
    """Why no step can be joined here, or values not be given back; empty where nothing is."""
    for place, one in enumerate(state):
        if one.numel() and (one.device.type != "tpu" or _array(_memory(one)) is None):
            dtype = str(one.dtype).removeprefix("torch.")
            what = f"state[{place}], {dtype}{list(one.shape)} on {one.device}"
            return f"{what}, is on the CPU, or its memory of another dtype: it would stay behind"
    return joined.obstacle()


class _Loop:
    """What is known of the step so far."""

    def __init__(self, step: Step, state: list[torch.Tensor]) -> None:
        self._step, self._state = step, state
        self._count = 0
        self._captured = joined.Captured(None, "")
        self._name = ""
        self._links: list[Link] = []
        self._loss = -1
        self._program: runtime.Joined | None = None
        self._inputs: list[Any] = []
        self._results: dict[int, Any] = {}
        self._owners: dict[int, int] = {}
        self._form: Form | None = None
        self.steady = False
        self.refused = _obstacle(state)

    def takes(self, batch: Sequence[torch.Tensor] | None) -> bool:
        """Whether the program that was captured last does."""
        return batch is not None and self.steady and self._form == _form(batch)

    def isolated(self, batch: Sequence[torch.Tensor]) -> float:
        """A step as it is, captured, and compared with the one before."""
        losses: list[torch.Tensor] = []
        places, self._form = _arrays(batch), _form(batch)
        self._count += 1
        try:
            now = joined.capture(
                lambda: losses.append(self._step(*batch).detach()), keep=True, copy=False
            )
        except FuseError as error:
            if not losses:
                raise
            # A first step may be run in other ways than later ones, of which none is refused.
            self.refused = str(error) if self._count > PATIENCE else ""
            self._name, self.steady = "", False
            return float(losses[0])
        self._compare(now, places, _arrays(losses))
        return float(losses[0])

    def _compare(self, now: joined.Captured, places: dict[int, int], loss: dict[int, int]) -> None:
        """Whether the step is what the one before was. What others happen to hold of its values,
        and so its outputs, may differ: what the loop needs of them is known once it is steady.
        """
        before, name, links, why = self._captured, self._name, self._links, ""
        self._captured, self._links = now, _links(before, now, places)
        self._name = agreement.digest(replace(now.program, outputs=()))
        self._loss = next((value for value, got in _left(now) if id(got) in loss), -1)
        if self._form is None:
            why = "takes a batch that is a part of its memory, in another order there or on the CPU"
        elif self._name != name:
            why = "is another program each time"
        elif any(not np.array_equal(*pair) for pair in zip(now.words, before.words, strict=True)):
            why = "computes with numbers of the host that change from step to step"
        elif ("", 0) in self._links:
            why = (
                "reads arrays that are neither its batch, nor made by the step before, nor constant"
            )
        elif self._loss < 0:
            why = "returns a loss that is a part of another tensor, on the CPU, or not its own"
        self.steady = not why and links == self._links
        if self._count > PATIENCE and not self.steady:
            self.refused = f"the step {why or 'does not become steady'}"

    def joined(self, batch: Sequence[torch.Tensor]) -> float:
        """A step of the program of all ranks."""
        if self._program is None:
            self._begin()
        assert self._program is not None
        get, share = lazy.engine().arrays.read, lazy.core().share
        for at, (source, place) in enumerate(self._links):
            if source == "batch":
                self._inputs[at] = self._shaped(get(share(batch[place].detach())), at)
        made = self._program([*self._captured.words, *self._inputs])
        self._results = dict(zip(self._captured.program.outputs, made, strict=True))
        for at, (source, value) in enumerate(self._links):
            if source == "state":
                self._inputs[at] = self._results[value]
        return float(self._program.host(self._results[self._loss]).reshape(()))

    def _begin(self) -> None:
        """The program, once all ranks have agreed on it, and what it starts from."""
        get, now = lazy.engine().arrays.read, self._captured
        left = dict(_left(now))
        numbers = {id(got): value for value, got in left.items()}
        owned = _arrays([_memory(one) for one in self._state]).items()
        self._owners = {place: numbers[array] for array, place in owned if array in numbers}
        state = {value for source, value in self._links if source == "state"}
        outputs = tuple(sorted({self._loss, *self._owners.values(), *state}))
        inputs = zip(self._links, now.program.inputs, strict=True)
        fed = [(value, spec.shape) for (source, value), (_, spec) in inputs if source == "state"]
        program = replace(now.program, outputs=outputs, shapes=tuple(fed))
        # What it began with the device has no more.
        self._captured = joined.Captured(program, agreement.digest(program), now.words)
        joined.agreed(self._captured)
        self._program = runtime.Joined(program)
        self._inputs = [None] * len(self._links)
        for at, (source, value) in enumerate(self._links):
            if source != "batch":
                array = left[value] if source == "state" else now.given[at]
                self._inputs[at] = self._shaped(np.array(get(array)), at)

    def _shaped(self, array: Any, at: int) -> Any:
        return np.asarray(array).reshape(self._captured.program.inputs[at][1].shape)

    def finish(self) -> None:
        """Give the tensors of the state what the joined steps have made of them."""
        program, self._program = self._program, None
        if program is None or not self._results:
            return
        for place, value in self._owners.items():
            memory, host = _memory(self._state[place]), program.host(self._results[value])
            array = lazy.engine().backend.put(host, memory.device.index or 0)
            made = sharing.adopted(array, memory.dtype, memory.device.index or 0)
            memory.view(host.shape).copy_(made)


def _left(captured: joined.Captured) -> list[tuple[int, Any]]:
    """Values that the step has left behind, and their arrays."""
    if captured.program is None:
        return []
    return list(zip(captured.program.outputs, captured.got, strict=True))


def _links(before: Any, now: Any, batch: dict[int, int]) -> list[Link]:
    """Where each input of ``now`` comes from; ``("", 0)`` where that is not known."""
    made = {id(got): value for value, got in _left(before)}
    found = []
    for at, array in enumerate(now.given):
        if id(array) in batch:
            found.append(("batch", batch[id(array)]))
        elif id(array) in made:
            found.append(("state", made[id(array)]))
        else:
            same = at < len(before.given) and before.given[at] is array
            found.append(("same", 0) if same else ("", 0))
    return found
