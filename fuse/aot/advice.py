"""Advice that proves itself: each finding compiles what it proposes, and says the difference.

A finding looks at the nodes of the call's chunks for something that the target does slowly,
compiles the chunks with the change, and reports what that takes off the call. What gains less than
``LEAST`` is not reported: so a model without flaws gets no advice. Costs are counted in the ticks
of the target's machine: cycles, or where its compiler estimates none, time by published peaks.

What only some machines do slowly, ``Machine`` says of them: lanes and matrix units to be filled,
64-bit numbers that are emulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fuse.aot.heads import CannotJoinError, Joined, is_attention, query
from fuse.aot.resize import padded_product, resized_product, rows
from fuse.aot.retype import retyped
from fuse.aot.text import time
from fuse.backends.base import Chunk
from fuse.backends.estimates import AS_IT_IS, Estimate, Machine, Variant
from fuse.engine.targeted import Planned, Targeted, single
from fuse.trace.node import Node, Operand, Output

LEAST: Final = 0.02
"""The least share of the call's cost that is worth a line."""
TOGETHER: Final = 2
"""Heads that are joined: 64 becomes 128, which fills the lanes of a vector."""
LANES: Final = 128
PRODUCTS: Final = frozenset(
    [
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "mv",
        "addmv",
        "dot",
        "matmul",
        "linear",
        "convolution",
        "convolution_backward",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_fused_attention_overrideable_backward",
    ]
)
READS: Final = ("host_read", "host_fallback")
"""Cuts that a program could do without, one a call apart: the loss has to be read some time."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is judged: a call's different chunks, how often each runs, and what it costs."""

    targeted: Targeted
    chunks: tuple[tuple[Chunk, int], ...]
    ticks: int
    data: dict[str, Any]

    @property
    def machine(self) -> Machine:
        """Whose ticks they are."""
        return self.targeted.target.machine

    def of(self, estimate: Estimate) -> int:
        """The ticks of a chunk."""
        return self.machine.total(estimate)

    def shown(self, ticks: int) -> str:
        """Ticks as text: cycles, or a time."""
        cycles = f"{ticks:,} cycles"
        return cycles if self.machine.counts_cycles else time(self.machine.seconds(ticks))

    def cost(self, change: Callable[[Chunk], Chunk | None], variant: Variant = AS_IT_IS) -> int:
        """Ticks of the call with changed chunks; ``None`` leaves one as it is.

        A chunk that does not compile so stays as it is; one that is slower so counts as slower.
        """
        wanted = [(chunk, change(chunk), count) for chunk, count in self.chunks]
        for _, changed, _ in wanted:
            if changed is not None:
                self.targeted.submit(changed, variant)
        total = 0
        for chunk, changed, count in wanted:
            now = self.targeted.estimate(chunk)
            found = now if changed is None else self.targeted.estimate(changed, variant)
            total += self.of(now if found.error else found) * count
        return total

    def finding(self, what: str, nodes: Sequence[Node], change: str, after: int) -> dict[str, Any]:
        """One finding, of the lines of ``nodes``."""
        lines = Counter(node.source for node in nodes if not node.source.startswith("backward ("))
        share = (self.ticks - after) / self.ticks
        counts = self.machine.counts_cycles
        became = f"{after:,}" if counts else self.shown(after)
        return {
            "what": what,
            "source": lines.most_common(1)[0][0] if lines else "",
            "change": change,
            "gain": share,
            "cycles_before": self.ticks if counts else None,
            "cycles_after": after if counts else None,
            "seconds_before": self.machine.seconds(self.ticks),
            "seconds_after": self.machine.seconds(after),
            "proof": f"compiled so: {self.shown(self.ticks)} became {became}",
        }


def advise(targeted: Targeted, data: dict[str, Any], runs: Sequence[int]) -> list[dict[str, Any]]:
    """Findings about a call, largest gain first; nothing under ``LEAST``."""
    times: Counter[str] = Counter()
    chunks: dict[str, Chunk] = {}
    for number in runs:
        for chunk in targeted.plans[number].chunks:
            digest = targeted.digest(chunk)
            chunks[digest] = chunk
            times[digest] += 1
    pairs = tuple((chunk, times[digest]) for digest, chunk in chunks.items())
    ticks = sum(
        targeted.target.machine.total(targeted.estimate(chunk)) * count for chunk, count in pairs
    )
    if ticks == 0:
        return []
    call = Call(targeted, pairs, ticks, data)
    found = [finding for rule in RULES for finding in rule(call)]
    found = [finding for finding in found if finding["gain"] >= LEAST]
    return sorted(found, key=lambda finding: -float(finding["gain"]))


def _nodes(call: Call, wanted: Callable[[Node], bool]) -> list[Node]:
    return [node for chunk, _ in call.chunks for node in chunk.nodes if wanted(node)]


def _is_product(node: Node) -> bool:
    return node.target.partition(".")[0] in PRODUCTS


def _is_float32_product(node: Node) -> bool:
    return _is_product(node) and "float32" in node.dtypes()


def float32_products(call: Call) -> Iterator[dict[str, Any]]:
    """Products of float32, which matrix units are slower at than at narrower numbers."""
    nodes = _nodes(call, _is_float32_product)
    setting = call.targeted.target.describe().get("float32 products", "highest")
    if not nodes or setting == "medium":
        return
    settings = [name for name in ("high", "medium") if name != setting]
    found = {name: call.cost(lambda chunk: chunk, Variant(precision=name)) for name in settings}
    best = min(found, key=found.__getitem__)
    several = "are made of several of bfloat16 each"
    how = several if call.machine.matrix else "keep all their digits"
    finding = call.finding(
        f"{len(nodes)} products of float32 {how}, as "
        f'torch.set_float32_matmul_precision is "{setting}"',
        nodes,
        f'torch.set_float32_matmul_precision("{best}"), or bfloat16 by torch.autocast',
        found[best],
    )
    others = [
        f'"{name}" makes ' + (f"{ticks:,} of them" if call.machine.lanes else call.shown(ticks))
        for name, ticks in found.items()
        if name != best
    ]
    yield finding | {"proof": "; ".join([finding["proof"], *others])}


def narrow_heads(call: Call) -> Iterator[dict[str, Any]]:
    """Attention whose heads fill half of a vector's lanes."""
    nodes = _nodes(call, is_attention) if call.machine.lanes else []
    if not nodes or query(nodes[0]).shape[-1] * TOGETHER > LANES:
        return
    try:
        change = Joined([chunk for chunk, _ in call.chunks], TOGETHER)
    except CannotJoinError:
        return
    heads, _, width = query(nodes[0]).shape[-3:]
    yield call.finding(
        f"attention with {heads} heads of {width}: a TPU's vectors have {LANES} lanes",
        nodes,
        f"{heads // TOGETHER} heads of {width * TOGETHER} have the same width and as many "
        "parameters",
        call.cost(change),
    )


def odd_dimensions(call: Call) -> Iterator[dict[str, Any]]:
    """Products a dimension of which misses a multiple of 128: each alone, before and after."""
    if not call.machine.lanes:
        return
    changed: dict[int, list[Node]] = {}
    gains: Counter[int] = Counter()
    pairs = [
        (size, node, count, call.targeted.submit(single(node)), call.targeted.submit(single(wider)))
        for chunk, count in call.chunks
        for node in chunk.nodes
        for size, wider in padded_product(node, LANES)
    ]
    for size, node, count, *futures in pairs:
        before, after = (future.result() for future in futures)
        if not before.error and not after.error:
            gains[size] += (call.of(before) - call.of(after)) * count
            changed.setdefault(size, []).append(node)
    for size, gain in gains.items():
        wide = -(-size // LANES) * LANES
        finding = call.finding(
            f"{len(changed[size])} products have a dimension of {size}, which is no multiple of "
            f"{LANES}",
            changed[size],
            f"{wide} instead of {size}",
            call.ticks - gain,
        )
        proof = f"compiled alone with {wide}: these products take {call.shown(gain)} less"
        yield finding | {"proof": proof}


def emulated(call: Call) -> Iterator[dict[str, Any]]:
    """Numbers of 64 bits, where the machine has no registers for them."""
    for wide in call.machine.emulates:
        narrow = wide.replace("64", "32")
        nodes = _nodes(call, lambda node, wide=wide: _computes(node, wide))  # type: ignore[misc]
        if nodes:
            yield call.finding(
                f"{len(nodes)} operations on {wide}, which the compiler makes of pairs of 32 bits",
                nodes,
                f"{narrow}, where its range does",
                call.ticks - _saved(call, wide, narrow),
            )


def _saved(call: Call, wide: str, narrow: str) -> int:
    """Ticks that another dtype takes off the call.

    Of integers with products of float32 made in bfloat16, before and after: they cost the same,
    and such a chunk compiles in an eighth of the time.
    """
    products = _nodes(call, _is_float32_product)
    quick = Variant(precision="medium") if products and wide == "int64" else AS_IT_IS
    concerned = {
        chunk for chunk, _ in call.chunks if any(_computes(node, wide) for node in chunk.nodes)
    }
    before = call.cost(lambda chunk: chunk if chunk in concerned else None, quick)
    return before - call.cost(
        lambda chunk: retyped(chunk, wide, narrow) if chunk in concerned else None, quick
    )


def _computes(node: Node, dtype: str) -> bool:
    """Whether a node reads or makes more than a few numbers of a dtype."""
    known: tuple[Operand | Output, ...] = (*node.operands, *node.outputs)
    views = [one.view for one in known]
    return any(view.dtype == dtype and view.numel > LANES for view in views)


def cuts(call: Call) -> Iterator[dict[str, Any]]:
    """Launches that reads on the host make; what one costs is the host's part, measured here."""
    reads = sum(call.data["cuts"].get(name, 0) for name in READS) - 1
    if reads < 1:
        return
    saved = reads * call.data["launch_seconds"] / max(call.data["launches"], 1)
    seconds = call.data["seconds"] + call.data["launch_seconds"]
    nodes = [call.targeted.plans[number].plan.trace.nodes[-1] for number in _read_plans(call)]
    finding = call.finding(
        f"{reads + 1} times the call waits for a number on the host",
        nodes,
        "read once at the end, or every so many steps; keep conditions on the device (torch.where)",
        max(call.ticks - int(saved * call.machine.rate), 0),
    )
    yield finding | {
        "gain": saved / seconds,
        "proof": f"{reads} launches less, of {saved / reads * 1e6:.0f} us each on the host",
    }


def _read_plans(call: Call) -> list[int]:
    return [
        planned.number
        for planned in call.targeted.plans
        if any(planned.cuts[name] for name in READS)
    ]


def changing_shapes(call: Call) -> Iterator[dict[str, Any]]:
    """Plans of the same operations in other shapes: each was compiled for itself."""
    forms: dict[tuple[str, ...], list[Planned]] = {}
    for planned in call.targeted.plans:
        nodes = planned.plan.trace.nodes
        if len(nodes) > 3:
            forms.setdefault(tuple(node.op for node in nodes), []).append(planned)
    for several in forms.values():
        shapes = {
            tuple(str(leaf.layout) for leaf in planned.plan.trace.leaves) for planned in several
        }
        if len(shapes) < 4:
            continue
        seconds = [
            sum(call.targeted.estimate(chunk).seconds for chunk in planned.chunks)
            for planned in several
        ]
        rest = sum(sorted(seconds)[:-1])
        finding = call.finding(
            f"{len(shapes)} shapes of the same {len(several[0].plan.trace.nodes)} operations",
            several[0].plan.trace.nodes,
            "pad to one shape, or to a few: each new one is compiled",
            call.ticks,
        )
        yield finding | {
            "gain": rest / max(sum(seconds), 1e-9),
            "proof": f"compiling took {sum(seconds):.1f} s, all but the longest {rest:.1f} s "
            "(the share is of that, not of what the call costs)",
        }


def small_batches(call: Call) -> Iterator[dict[str, Any]]:
    """Products of fewer rows than a matrix unit has: those of a full one cost little more.

    The rows are those that most products have. Each product is compiled alone with as many rows as
    fill the unit; the gain is in ticks a row.
    """
    full = call.machine.matrix
    counted: Counter[int] = Counter()
    for chunk, count in call.chunks:
        for node in chunk.nodes:
            counted[rows(node)] += count
    del counted[0]
    if not counted or counted.most_common(1)[0][0] >= full:
        return
    few = counted.most_common(1)[0][0]
    nodes: list[Node] = []
    now = then = inside = 0
    for chunk, count in call.chunks:
        wider = {at: resized_product(node, few, full) for at, node in enumerate(chunk.nodes)}
        places = {at for at, product in wider.items() if product is not None}
        costs = call.targeted.estimate(chunk).costs
        inside += sum(call.machine.ticks(cost) for cost in costs if cost.node in places) * count
        for at, product in wider.items():
            if product is None:
                continue
            pair = [call.targeted.estimate(single(one)) for one in (chunk.nodes[at], product)]
            if not any(one.error for one in pair):
                nodes.append(chunk.nodes[at])
                now, then = now + call.of(pair[0]) * count, then + call.of(pair[1]) * count
    if not now:
        return
    finding = call.finding(
        f"{len(nodes)} products of {few} rows: a matrix unit takes {full} at once",
        nodes,
        f"a batch of {full} rows",
        call.ticks - int(inside * max(1 - then * few / (now * full), 0)),
    )
    proof = (
        f"compiled alone: these products take {call.shown(now)} for {few} rows and {then:,} for "
        f"{full}; the gain is of every {few} rows, in what they take within the call"
    )
    yield finding | {"proof": proof}


RULES: Final = (
    float32_products,
    narrow_heads,
    odd_dimensions,
    emulated,
    small_batches,
    cuts,
    changing_shapes,
)
