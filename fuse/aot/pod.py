"""``fuse.compile_pod``: what a step of many ranks costs on a slice, by the TPU's own compiler."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, final

import torch.distributed as dist

from fuse.aot.data import published
from fuse.aot.flops import of_products
from fuse.aot.pod_text import page, text
from fuse.backends.estimates import Estimate, Machine, Variant
from fuse.device import lazy
from fuse.distributed import joined
from fuse.errors import FuseError, describe
from fuse.report.page import Page
from fuse.trace.spec import ITEMSIZE

CALLS: Final = 3
"""As for ``compile_for``: the first makes an optimizer's averages, the third is as all others."""
LINEAR: Final = (
    "compute_seconds", "exposed_seconds", "step_seconds", "flops", "peak_bytes", "temporary_bytes",
    "code_bytes",
)  # fmt: skip
"""What grows by the same with each of equal layers."""
SECONDS: Final = 3600.0
"""Processor time that the compiler may take: a layer of a large model takes it some ten seconds."""
CYCLES: Final = (
    "computing takes the compiler's estimated cycles; what has none is listed and counts nothing"
)
LEAST: Final = (
    "no machine code was made: computing takes what instructions take at least at the published "
    "peaks, which ranks steps and forecasts none; code takes no memory"
)
ASSUMES: Final = (
    "a collective takes its bytes at the published peak of the links its group spans, and no "
    "latency; one at a time; it hides behind what the schedule puts between start and end",
    "all ranks run rank 0's program, at once; one launch a step, which the host has ready in time",
)


@final
class PodReport(Page):
    """What one step costs on a slice. Every figure is an estimate; no TPU ran.

    Attributes:
        error: why the compiler refuses the step; empty where it compiled.
        ranks: devices that run it together.
        step_seconds: computing, and what of the collectives is not hidden behind it.
        compute_seconds: computing alone.
        exposed_seconds: sending, while nothing is computed.
        flops: of one rank's products: see ``fuse.aot.flops``, and ``compile_pod``.
        mfu: ``flops`` over what the device could compute in the step, 0 to 1.
        peak_bytes: memory of one device while the step runs, with arguments and results.
        fits: whether that is in its memory.
        collectives: a dict for each kind, bytes and size of group: ``kind``, ``nbytes`` (of the
            whole array), ``ranks``, ``count``, ``seconds`` and ``exposed`` (of all together).
        largest: a dict for each of the largest arrays that a device holds between steps:
            ``array``, ``nbytes``, ``count``.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        """``data`` is what ``to_dict`` returns."""
        self._data = data
        self.error: str = data["error"]
        self.ranks: int = data["ranks"]
        self.step_seconds: float = data["step_seconds"]
        self.compute_seconds: float = data["compute_seconds"]
        self.exposed_seconds: float = data["exposed_seconds"]
        self.flops: int = data["flops"]
        self.mfu: float = data["mfu"]
        self.peak_bytes: int = data["peak_bytes"]
        self.fits: bool = data["fits"]
        self.collectives: list[dict[str, Any]] = data["collectives"]
        self.largest: list[dict[str, Any]] = data["largest"]

    def __str__(self) -> str:
        return text(self._data)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, with ``target``, ``machine``, ``assumes``, ``unestimated``,
        ``options`` (of the compiler, beside its defaults),
        ``timeline`` (each collective's beginning, in seconds), ``temporary_bytes`` and
        ``code_bytes`` (parts of the peak), ``reads`` and ``compile_seconds``.
        """
        return self._data

    def to_html(self) -> str:
        """A page with the step's timeline; it loads nothing."""
        return page(self._data)

    def at_depth(self, other: PodReport, layers: tuple[int, int], wanted: int) -> PodReport:
        """The report of a deeper model, on the line through this one's and another's.

        A model of equal layers need not be compiled whole: its time, memory and products grow by
        the same with each. Its collectives are those of ``other``; ``assumes`` says so.

        Args:
            other: the report of the same step with more layers.
            layers: how many this one and the other have.
            wanted: how many the model has.

        Raises:
            FuseError: the reports are of different targets, or one is of a refused step, or the
                numbers of layers do not differ.
        """
        first, second = layers
        same = self._data["target"] == other._data["target"] and self.ranks == other.ranks
        if first == second or not same or self.error or other.error:
            raise FuseError(
                describe("two compiled steps of one target and different depths are needed")
            )
        along = (wanted - first) / (second - first)
        found = dict(other._data)
        for name in LINEAR:
            low, high = self._data[name], other._data[name]
            found[name] = type(low)(low + (high - low) * along)
        note = (
            f"extrapolated to {wanted} layers from compiling {first} and {second}; the collectives "
            f"are those of {second}"
        )
        found["assumes"] = (note, *other._data["assumes"])
        return PodReport(_judged(found))


def compile_pod(
    target: str,
    step: Callable[..., Any],
    *args: Any,
    seconds: float = SECONDS,
    flops: int | None = None,
    scheduled: bool = False,
) -> PodReport:
    """Run ``step(*args)`` three times in a fake run, and compile the last for a whole slice.

    Its chunks and collectives become one SPMD program of all ranks, in the program's order.
    It needs the TPU's compiler, ``pip install "torch-fuse[tpu]"``, and no TPU.

    Args:
        target: a slice with as many devices as there are ranks, such as ``v5e:16x16``.
        step: a training or decoding step, whose model was made inside the fake run.
        args: its arguments.
        seconds: processor time that the compiler may take.
        flops: of a rank's products, for the MFU; those of the step where none are given, with what
            it computes again for the backward pass. ``products`` of the step without that is the
            model's.
        scheduled: compile no further than the schedule, in seconds in place of minutes. Memory and
            collectives are those of the whole; computing is a bound from below, that ranks steps.

    Returns:
        What the step costs; what the compiler refuses is in ``error``.

    Raises:
        FuseError: this is no fake run, or the step does what no program of all ranks can hold.
        ConfigError: there is no such target, or libtpu is not installed.

    Example:
        ```python
        with fuse.fake(ranks=16):
            with torch.device("tpu"):
                model = torch.nn.Linear(256, 256)
            model = torch.nn.parallel.DistributedDataParallel(model)
            x = torch.randn(64, 256, device="tpu")
            report = fuse.compile_pod("v5e:4x4", lambda: model(x).square().mean().backward())
        assert report.error == "" and report.fits
        ```
    """
    captured = _third(lambda: step(*args))
    return report_of(target, captured, seconds, flops=flops, scheduled=scheduled)


def products(step: Callable[[], Any]) -> int:
    """The operations of a rank's products in a step of a fake run: see ``fuse.aot.flops``.

    Raises ``FuseError`` as ``compile_pod`` does.
    """
    return of_products(_third(step).program.nodes)


def _third(step: Callable[[], Any]) -> joined.Captured:
    if not lazy.is_fake():
        raise FuseError(
            describe(
                "compile_pod compiles a step of a fake run",
                hint="make the model and call it inside `with fuse.fake(ranks=...):`",
            )
        )
    for _ in range(CALLS - 1):
        step()
    return joined.capture(step)


def report_of(
    target: str,
    captured: joined.Captured,
    seconds: float = SECONDS,
    ranks: int | None = None,
    flops: int | None = None,
    scheduled: bool = False,
) -> PodReport:
    """The report of a captured step; raises as ``compile_pod`` does.

    ``ranks``: how many there are; those of the default process group, where none are given.
    """
    opened = lazy.engine().backend.target(target, seconds)
    try:
        estimate, _ = opened.compile(captured.program, Variant(scheduled=scheduled))
        described = opened.describe()
    finally:
        opened.close()
    if ranks is None:
        ranks = dist.get_world_size() if dist.is_initialized() else 1
    backend: Any = lazy.engine().backend
    data = {
        "target": opened.name,
        "ranks": ranks,
        "compiler": described,
        "machine": published(opened.machine),
        "error": estimate.error,
        "flops": of_products(captured.program.nodes) if flops is None else flops,
        "reads": backend.reads(),
        "options": dict(estimate.options),
        "assumes": (LEAST if estimate.scheduled else CYCLES, *ASSUMES),
        "largest": _largest(captured.program),
        **_costs(estimate, opened.machine),
    }
    return PodReport(_judged(data))


def _costs(estimate: Estimate, machine: Machine) -> dict[str, Any]:
    groups: dict[tuple[str, int, int], list[Any]] = {}
    for one in estimate.transfers:
        groups.setdefault((one.kind, one.nbytes, one.ranks), []).append(one)
    return {
        "compute_seconds": machine.seconds(estimate.cycles),
        "exposed_seconds": math.fsum(one.exposed for one in estimate.transfers),
        "step_seconds": estimate.step_seconds,
        "peak_bytes": estimate.peak_bytes,
        "temporary_bytes": estimate.temporary_bytes,
        "code_bytes": estimate.code_bytes,
        "unestimated": _without(estimate),
        "compile_seconds": estimate.seconds,
        "collectives": [
            {
                "kind": kind,
                "nbytes": nbytes,
                "ranks": ranks,
                "count": len(found),
                "seconds": math.fsum(one.takes for one in found),
                "exposed": math.fsum(one.exposed for one in found),
            }
            for (kind, nbytes, ranks), found in groups.items()
        ],
        "timeline": [
            {"kind": one.kind, "begins": one.begins, "takes": one.takes, "exposed": one.exposed}
            for one in estimate.transfers
        ],
    }


def _without(estimate: Estimate) -> dict[str, int]:
    """What has no estimate, but for the collectives that the timeline has."""
    counted = Counter(one.kind for one in estimate.transfers)
    left = {
        name: count - counted[name.removesuffix("-start").removesuffix("-done")]
        for name, count in estimate.unestimated.items()
    }
    return {name: count for name, count in left.items() if count > 0}


def _largest(program: Any) -> list[dict[str, Any]]:
    """The arrays that a step takes, by shape and dtype, most bytes first."""
    counts = Counter((spec.dtype, spec.shape) for _, spec in program.inputs)
    found = [
        {
            "array": f"{dtype}[{','.join(map(str, shape))}]",
            "nbytes": math.prod(shape) * ITEMSIZE[dtype],
            "count": count,
        }
        for (dtype, shape), count in counts.items()
    ]
    return sorted(found, key=lambda one: -one["nbytes"] * one["count"])[:10]


def _judged(data: dict[str, Any]) -> dict[str, Any]:
    """With what follows from the other figures."""
    machine = data["machine"]
    possible = data["step_seconds"] * machine["flops"]
    mfu = data["flops"] / possible if possible else 0.0
    return {**data, "mfu": mfu, "fits": 0 < data["peak_bytes"] <= machine["memory"]}
