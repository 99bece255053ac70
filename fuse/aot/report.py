"""``fuse.compile_for``: what a call costs on a TPU or GPU, asked of that device's own compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, final

from fuse.aot.advice import advise
from fuse.aot.data import failures, gather
from fuse.aot.html import page
from fuse.aot.text import text
from fuse.cache.bundle import export_bundle
from fuse.device import lazy
from fuse.engine.executables import secret
from fuse.engine.targeted import Targeted
from fuse.errors import ConfigError, describe
from fuse.report.page import Page

CALLS: Final = 3
"""Calls of the function: the first makes what later ones find, such as an optimizer's averages;
the second shows which numbers vary; the third is as all others will be."""


@final
class TargetReport(Page):
    """What one call costs on a target, of which nothing ran: see ``note`` of ``to_dict``.

    Attributes:
        failures: a dict for each operation that the compiler refuses: ``operator``,
            ``operands``, ``source``, ``reason``, and ``kind``: ``refused``, ``aborted`` (the
            compiler ended its process) or ``time-out``.
        cycles: estimated cycles of the call's chunks, launches apart from them; ``None`` for a
            GPU, whose compiler estimates none.
        seconds: the cycles at the machine's clock; for a GPU what the chunks take at least by its
            published peaks.
        launches: executables that the call starts.
        chunks: a dict for each different executable; see ``to_dict``.
        peak_bytes: memory while the dearest of the call's traces runs.
        advice: a dict for each finding: ``what``, ``source``, ``change``, ``gain`` (a share of
            what the call costs), ``cycles_before``, ``cycles_after``, ``seconds_before``,
            ``seconds_after``, ``proof``.
    """

    def __init__(self, data: dict[str, Any], targeted: Targeted) -> None:
        """``data`` is what ``gather`` returns, with advice."""
        self._data, self._targeted = data, targeted
        self.failures: list[dict[str, Any]] = data["failures"]
        self.cycles: int | None = data["cycles"]
        self.seconds: float = data["seconds"]
        self.launches: int = data["launches"]
        self.chunks: list[dict[str, Any]] = data["chunks"]
        self.peak_bytes: int = data["peak_bytes"]
        self.advice: list[dict[str, Any]] = data["advice"]

    def __str__(self) -> str:
        return text(self._data)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data that ``json.dumps`` takes.

        Keys beside the attributes: ``target``, ``model`` (``cycles`` or ``roofline``), ``note``
        (what the figures are), ``compiler`` and ``machine`` (versions; published peaks and their
        source), ``kernels`` (instructions that run), ``launch_seconds`` (the host's part of the
        launches, measured on a CPU), ``fits``, ``cuts`` (why traces ended -> how often) and
        ``host_calls`` (operations that the target cannot run, known at the call: they run on the
        host).

        Of each chunk: ``runs`` (in the call), ``operations``, ``lines``, ``cycles``, ``seconds``,
        ``bound`` (``compute``, ``memory`` or ``launch``, the largest of ``bound_seconds``),
        ``flops``, ``bytes_moved`` (arrays in and out, temporaries twice; for a GPU what every
        kernel reads and writes), ``kernels``, ``bytes_in``,
        ``bytes_out``, ``temporary_bytes``, ``peak_bytes``, ``padding`` (a share), ``padded``
        (the arrays that it is in), ``costs`` (cycles or seconds by operation), ``unestimated``
        (what the compiler gives no estimate of -> how often; in no sum), ``kernel_cycles`` (the
        part of the cycles that is computed from the work that kernels state), ``error``.
        """
        return self._data

    def to_html(self) -> str:
        """A page with the call as bars; it loads nothing."""
        return page(self._data)

    def pack(self, path: str | Path) -> Path:
        """Write a bundle of everything that was compiled for the target, with plans.

        ``fuse cache import`` reads it on a host of the target, which then compiles none of it.

        Args:
            path: the file to write, which is replaced.

        Returns:
            The path.

        Raises:
            OSError: it cannot be written.
            ConfigError: the cache is off.
        """
        target = Path(path)
        cache = lazy.engine().executables.cache
        try:
            digests = self._targeted.digests()
        finally:
            self._targeted.target.close()
        names = [name for name in cache.stats()["tiers"] if name != "memory"]
        if not names:
            raise ConfigError(
                describe("a pack is written from the cache's stored tier, and FUSE_CACHE is off")
            )
        tiers = [cache.tier(name) for name in names]
        export_bundle(target, tiers, digests=digests, secret=secret())
        return target


def compile_for(
    target: str, fn: Callable[..., Any], *args: Any, advice: bool = True, **kwargs: Any
) -> TargetReport:
    """Call ``fn(*args, **kwargs)`` three times, and compile the last call for ``target``.

    The calls really happen, on this machine, with its CPU's results. Their traces are planned as
    on the target, and every chunk is compiled for it beside the program. It needs that device's
    own compiler, ``pip install "torch-fuse[tpu]"`` or ``"torch-fuse[cuda13]"``, and no such device.

    Args:
        target: v4, v5e, v5p, v6e or tpu7x (one chip), or a topology such as ``v5e:4x4``; a100,
            h100, h200 or b200, or several of one host, such as ``h100:8``.
        fn: a step of a program, which may have run before or not; what it raises is raised here.
        args: positional arguments of ``fn``.
        advice: whether to look for advice, which compiles chunks in other ways as well; no
            argument of ``fn``.
        kwargs: named arguments of ``fn``.

    Returns:
        What the call costs there: ``print`` it, ``save`` it as a page, or ``pack`` what was
        compiled. What the compiler refuses is in ``failures``, and no error.

    Raises:
        ConfigError: there is no such target, or its compiler is not installed.

    Example:
        ```python
        x = torch.ones(64, 64, device="tpu")
        report = fuse.compile_for("v5e", lambda: (x @ x).relu().sum())
        report.save("step.html")
        ```
    """
    targeted = open_target(target)
    core, engine = lazy.core(), lazy.engine()
    start = 0
    try:
        lazy.set_target(targeted)
        for _ in range(CALLS):
            start = len(targeted.runs)
            made = fn(*args, **kwargs)  # alive at the cut: what nobody holds is not computed
            core.cut("synchronize")
            engine.wait()
            del made
    finally:
        lazy.set_target(None)
    return report_of(targeted, targeted.runs[start:], advice)


def open_target(name: str) -> Targeted:
    """The target, with its compiler started; raises ``ConfigError`` as ``compile_for`` does."""
    targeted: Targeted = lazy.engine().open_target(name)
    targeted.target.fingerprint()
    return targeted


def report_of(
    targeted: Targeted,
    runs: Sequence[int],
    advice: bool = True,
    whole: bool = False,
    ready: Callable[[TargetReport], None] | None = None,
) -> TargetReport:
    """The report of the traces ``runs``, perhaps with advice; ends the compiler's processes.

    With ``whole`` its failures are those of the whole program; ``ready`` is called with it before
    what else the program ran is compiled for that.
    """
    try:
        data = gather(targeted, runs)
        data["advice"] = advise(targeted, data, runs) if advice else []
        report = TargetReport(data, targeted)
        if ready is not None:
            ready(report)
        if whole:
            targeted.submit_all(targeted.plans)
            data["failures"] = report.failures = failures(targeted, targeted.plans)
    finally:
        targeted.target.close()
    return report


def last_step(targeted: Targeted) -> list[int]:
    """The traces of a program's last step: from after one run of its dearest plan to the next.

    Of a program that runs no plan twice, all of them.
    """
    total: dict[int, int] = {}
    for planned in targeted.plans:
        if planned.runs > 1:  # the others need not be compiled for this
            total_of = targeted.target.machine.total
            once = 1 + sum(total_of(targeted.estimate(chunk)) for chunk in planned.chunks)
            total[planned.number] = planned.runs * once
    if not total:
        return list(targeted.runs)
    dearest = max(total, key=total.__getitem__)
    places = [at for at, number in enumerate(targeted.runs) if number == dearest]
    first, last = places[-2:] if len(places) > 1 else (-1, places[-1])
    return targeted.runs[first + 1 : last + 1]
