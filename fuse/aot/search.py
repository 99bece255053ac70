"""``fuse.search_pod``: which way to lay a model over a slice, by compiling a dozen of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, final

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fuse.aot.fake import fake
from fuse.aot.pod import PodReport, compile_pod
from fuse.aot.text import first_line, time
from fuse.errors import FuseError, describe
from fuse.report.units import size

DEPTHS: Final = (2, 4)
"""Layers that are compiled: of a model of one the peak is elsewhere."""
MOST_TENSOR: Final = 8
"""Ranks over which a layer's products are divided at most: more leave products too narrow."""
INSTEAD: Final = 2
"""Layouts that fit, named beside one that does not."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A way to lay a training step over ranks.

    Attributes:
        replicas: copies of the sharded model (HSDP where there are several).
        shard: ranks that a copy's parameters are sharded over (FSDP).
        tensor: ranks that a layer's products are divided over.
        batch: sequences of each group of ``tensor`` ranks.
        recompute: whether blocks are computed again for the backward pass.
    """

    replicas: int = 1
    shard: int = 1
    tensor: int = 1
    batch: int = 1
    recompute: bool = True

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.replicas * self.shard * self.tensor

    @property
    def sequences(self) -> int:
        """Sequences that a step of all ranks trains on."""
        return self.replicas * self.shard * self.batch

    def mesh(self) -> DeviceMesh:
        """A mesh of all ranks with the dimensions ``replicate``, ``shard`` and ``tensor``."""
        shape = (self.replicas, self.shard, self.tensor)
        return init_device_mesh("tpu", shape, mesh_dim_names=("replicate", "shard", "tensor"))

    def __str__(self) -> str:
        names = {"HSDP": self.replicas, "FSDP": self.shard, "TP": self.tensor}
        over = " x ".join(f"{name} {count}" for name, count in names.items() if count > 1)
        again = "recomputed" if self.recompute else "kept"
        return f"{over or 'one rank'}, {self.batch} sequences, activations {again}"


def layouts(ranks: int, batches: Iterable[int] = (1, 2)) -> list[Layout]:
    """FSDP over all ranks or half of them, with no tensor parallelism or 2 to 8 ranks of it, each
    with every number of sequences, recomputed; and FSDP alone with its activations kept.
    """
    found = [
        Layout(replicas, ranks // tensor // replicas, tensor, batch)
        for tensor in (1, 2, 4, MOST_TENSOR)
        for replicas in (1, 2)
        for batch in batches
        if ranks % (tensor * replicas) == 0 and (replicas == 1 or tensor == 1)
    ]
    return [*found, *(replace(one, recompute=False) for one in found if one.shard == ranks)]


@final
class Search:
    """Layouts of a model on a slice, compiled and compared. Every figure is an estimate.

    Attributes:
        ranked: pairs of a layout and its report, those that fit, least time a sequence first.
        refused: those that do not fit, or that the compiler refuses.
    """

    def __init__(self, target: str, found: Iterable[tuple[Layout, PodReport]]) -> None:
        """``found``: every layout with its report."""
        self.target = target
        pairs = list(found)
        self.ranked = sorted((one for one in pairs if one[1].fits), key=lambda one: cost(*one))
        self.refused = [one for one in pairs if not one[1].fits]

    def __str__(self) -> str:
        lines = [f"target    {self.target}; no TPU ran; computing at least as long as this"]
        for at, (layout, report) in enumerate(self.ranked, 1):
            lines.append(
                f"{at:>4}  {time(cost(layout, report))} a sequence, step "
                f"{time(report.step_seconds)}, {size(report.peak_bytes)}: {layout}"
            )
        for layout, report in self.refused:
            lines += ["", *self._refusal(layout, report)]
        return "\n".join(lines)

    def _refusal(self, layout: Layout, report: PodReport) -> list[str]:
        if report.error:
            return [f"refused  {layout}: {first_line(report.error)}"]
        memory = report.to_dict()["machine"]["memory"]
        lines = [f"refused  {layout}: {size(report.peak_bytes)} of {size(memory)}; the largest are"]
        lines += [
            f"  {one['count']:>4} {one['array']}: {size(one['nbytes'] * one['count'])}"
            for one in report.largest[:3]
        ]
        instead = self.ranked[:INSTEAD]
        lines += [f"  fits: {other}, {size(found.peak_bytes)}" for other, found in instead]
        return lines if instead else [*lines, "  no layout that was tried fits"]

    def to_dict(self) -> dict[str, Any]:
        """``target``, and ``ranked`` and ``refused``: of each its ``layout`` and ``report``."""
        return {
            "target": self.target,
            **{
                name: [{"layout": asdict(one), "report": of.to_dict()} for one, of in pairs]
                for name, pairs in (("ranked", self.ranked), ("refused", self.refused))
            },
        }


def cost(layout: Layout, report: PodReport) -> float:
    """Seconds of the whole slice for a sequence, by which layouts are ranked."""
    return report.step_seconds / layout.sequences if report.step_seconds else math.inf


def search_pod(
    target: str,
    build: Callable[[Layout, int], Callable[[], Any]],
    layers: int,
    choices: Iterable[Layout],
    depths: tuple[int, int] = DEPTHS,
) -> Search:
    """Compile a model's step in several layouts, each at two depths, and rank them.

    Steps are compiled as far as their schedule, some seconds each: memory and collectives are the
    whole step's, computing is a bound from below. See ``scheduled`` of ``compile_pod``.

    Args:
        target: a slice, such as ``v5e:4x4``, of as many devices as the layouts have ranks.
        build: makes a model of so many layers in a layout, in a fake run, and returns its step.
        layers: those of the model.
        choices: the layouts; ``fuse.aot.search.layouts(ranks)`` are a dozen usual ones.
        depths: layers that are compiled; the model's own are on the line through them.

    Returns:
        The layouts that fit, best first, and the others with what is largest in them.

    Raises:
        FuseError: there is no layout, or a step does what no program of all ranks can hold.
        ConfigError: there is no such target, or libtpu is not installed.

    Example:
        ```python
        from torch.distributed.fsdp import fully_shard
        from fuse.aot.search import Layout

        def build(layout, layers):
            with torch.device("tpu"):
                model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(layers)])
                x = torch.randn(64 * layout.batch, 256)
            fully_shard(model, mesh=layout.mesh()["shard"])
            return lambda: model(x).square().mean().backward()

        choices = [Layout(shard=4, batch=batch) for batch in (1, 2)]
        found = fuse.search_pod("v5e:2x2", build, layers=8, choices=choices)
        assert [layout.batch for layout, report in found.ranked] == [2, 1]
        ```
    """
    chosen = list(choices)
    if not chosen:
        raise FuseError(describe("a search needs a layout or more"))
    return Search(target, [(one, _report(target, build, layers, one, depths)) for one in chosen])


def _report(
    target: str,
    build: Callable[[Layout, int], Callable[[], Any]],
    layers: int,
    layout: Layout,
    depths: tuple[int, int],
) -> PodReport:
    found = []
    for depth in depths:
        with fake(layout.ranks):
            found.append(compile_pod(target, build(layout, depth), scheduled=True))
        if found[-1].error:
            return found[-1]
    return found[0].at_depth(found[1], depths, layers)
