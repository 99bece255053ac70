"""When a scheduled program computes and sends, read from small texts as libtpu writes them."""

from __future__ import annotations

import itertools
import math

import pytest

from fuse.backends.estimates import Machine
from fuse.backends.xla.targets import hlo
from fuse.backends.xla.tpu.costs import reader
from fuse.backends.xla.tpu.links import LINKS, Links, Slice, group_of
from fuse.backends.xla.tpu.targets import GENERATIONS
from fuse.backends.xla.tpu.timeline import Timeline

MACHINE = Machine("made up", 1e12, 1e12, 1 << 30, 1e6, "nowhere")
"""A cycle is a microsecond."""
LINE = Slice(Links(1e6, 4, "nowhere"), ((0,), (1,)))
"""Two chips side by side; a byte takes a microsecond."""


def grid(*sizes: int, closes: int = 4) -> Slice:
    places = tuple(itertools.product(*map(range, sizes)))
    return Slice(Links(1.0, closes, "nowhere"), places)


def timeline(*lines: str, more: str = "") -> Timeline:
    body = "\n".join(f"  {line}" for line in lines)
    text = (
        f"HloModule m, is_scheduled=true\n\n{more}ENTRY %e (p: f32[25]) -> f32[50] {{\n{body}\n}}\n"
    )
    return Timeline(hlo.parse(text), MACHINE, LINE, reader(MACHINE))


def work(name: str, cycles: int) -> str:
    return (
        f'%{name} = f32[25]{{0}} fusion(%p), kind=kLoop, backend_config={{"estimated_cycles":'
        f'"{cycles}"}}'
    )


GROUP = "replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true"
GATHER = f"all-gather(%p), channel_id=1, {GROUP}"


def test_a_ring_has_both_directions_and_a_line_one() -> None:
    ring, line = grid(4), grid(3)
    assert ring.rate(range(4)) == 2.0
    assert line.rate(range(3)) == 1.0
    assert grid(4, 4).rate(range(16)) == 4.0
    assert grid(4, 4).rate((0, 4, 8, 12)) == 2.0  # along the first axis
    assert grid(4, 4).rate((0, 1)) == 1.0  # a part of an axis
    assert grid(4, 4, closes=16).rate(range(16)) == 2.0  # lines, as on a v5e of 4 x 4


def test_what_each_kind_takes() -> None:
    ring = grid(4)
    assert ring.seconds("all-gather", 800, range(4)) == pytest.approx(300)
    assert ring.seconds("reduce-scatter", 800, range(4)) == pytest.approx(300)
    assert ring.seconds("all-reduce", 800, range(4)) == pytest.approx(600)
    assert ring.seconds("collective-permute", 800, range(4)) == pytest.approx(800)
    assert ring.seconds("all-gather", 800, (2,)) == 0.0
    both = Slice(Links(1.0, 4, ""), ((0,), (0,)))  # two devices of one chip
    assert both.seconds("all-gather", 800, range(2)) == 0.0


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("replica_groups={{0,2},{1,3}}, dimensions={0}", (0, 2)),
        ("replica_groups=[2,2]<=[4], x", (0, 1)),
        ("replica_groups=[2,2]<=[2,2]T(1,0), x", (0, 2)),
        ("replica_groups=[1,8]<=[8], x", tuple(range(8))),
        ("replica_groups=[4,4]<=[2,2,4]T(1,2,0), x", (0, 8, 1, 9)),
        ("dimensions={0}", (0, 1, 2, 3)),
    ],
)
def test_groups_are_read_in_both_forms(text: str, group: tuple[int, ...]) -> None:
    assert group_of(text, 4) == group


def test_what_is_waited_for_at_once_is_exposed() -> None:
    found = timeline(
        "%p = f32[25]{0} parameter(0)", work("a", 10), f"ROOT %g = f32[50]{{0}} {GATHER}"
    )
    (one,) = found.transfers
    # 200 bytes, of which each chip lacks the half.
    assert (one.kind, one.nbytes, one.ranks) == ("all-gather", 200, 2)
    assert one.takes == pytest.approx(100e-6)
    assert one.exposed == pytest.approx(100e-6)
    assert found.now == pytest.approx(110e-6)


def test_what_stands_between_start_and_done_hides_it() -> None:
    start = f"%s = (f32[25]{{0}}, f32[50]{{0}}) all-gather-start(%p), channel_id=1, {GROUP}"
    found = timeline(
        "%p = f32[25]{0} parameter(0)",
        start,
        work("a", 70),
        "ROOT %g = f32[50]{0} all-gather-done(%s)",
    )
    (one,) = found.transfers
    assert one.exposed == pytest.approx(30e-6)
    assert found.now == pytest.approx(100e-6)


def test_transfers_go_one_after_the_other() -> None:
    def start(number: int) -> str:
        return (
            f"%s{number} = (f32[25]{{0}}, f32[50]{{0}}) all-gather-start(%p), "
            f"channel_id={number}, {GROUP}"
        )

    found = timeline(
        "%p = f32[25]{0} parameter(0)",
        start(1),
        start(2),
        "%g1 = f32[50]{0} all-gather-done(%s1)",
        "ROOT %g2 = f32[50]{0} all-gather-done(%s2)",
    )
    assert [one.begins for one in found.transfers] == [0.0, pytest.approx(100e-6)]
    assert found.now == pytest.approx(200e-6)


def chain(name: str, target: str) -> str:
    gather = f'{GATHER}, frontend_attributes={{chain_id="3"}}'
    return (
        f"%{name} (q: f32[25]) -> f32[50] {{\n  %q = f32[25]{{0}} parameter(0)\n"
        f"  %i = f32[50]{{0}} {gather}\n"
        f'  ROOT %c = f32[50]{{0}} custom-call(%i), custom_call_target="{target}"\n}}\n\n'
    )


def fused(name: str, calls: str, cycles: int = 0) -> str:
    cost = f', backend_config={{"estimated_cycles":"{cycles}"}}' if cycles else ""
    return f"%{name} = f32[50]{{0}} fusion(%p), kind=kCustom, calls=%{calls}{cost}"


def test_a_collective_spread_over_fusions_hides_behind_them() -> None:
    more = (
        chain("begin", "AsyncCollectiveStart")
        + chain("among", "Other")
        + chain("end", "AsyncCollectiveDone")
    )
    found = timeline(
        "%p = f32[25]{0} parameter(0)",
        fused("s", "begin"),
        fused("m", "among", 40),
        "ROOT " + fused("d", "end"),
        more=more,
    )
    (one,) = found.transfers
    assert one.exposed == pytest.approx(60e-6)
    assert found.now == pytest.approx(100e-6)


def test_a_sum_of_which_a_part_is_kept_is_a_reduce_scatter() -> None:
    body = (
        "%scatter (q: f32[50]) -> f32[25] {\n  %q = f32[50]{0} parameter(0)\n"
        f"  %r = f32[50]{{0}} all-reduce(%q), channel_id=1, {GROUP}, to_apply=%add\n"
        "  ROOT %k = f32[25]{0} dynamic-slice(%r, %z), dynamic_slice_sizes={25}\n}\n\n"
    )
    found = timeline("%p = f32[25]{0} parameter(0)", "ROOT " + fused("f", "scatter"), more=body)
    (one,) = found.transfers
    assert (one.kind, one.nbytes) == ("reduce-scatter", 200)
    assert one.exposed == pytest.approx(100e-6)


def test_every_generation_has_links_with_a_source() -> None:
    assert set(LINKS) == set(GENERATIONS)
    assert all(one.source.startswith("https://") and one.each_way > 1e10 for one in LINKS.values())
    assert not math.isinf(Slice(LINKS["v5e"], ((0, 0), (0, 1))).rate((0, 1)))


def test_a_collective_in_a_loop_is_sent_as_often_as_it_runs() -> None:
    body = (
        "%b (p: f32[25]) -> f32[25] {\n  %p = f32[25]{0} parameter(0)\n"
        f"  %g = f32[50]{{0}} {GATHER}\n  ROOT {work('w', 10)}\n}}\n\n"
    )
    loop = (
        "%loop = f32[25]{0} while(%p), condition=%c, body=%b, "
        'backend_config={"known_trip_count":{"n":"3"}}'
    )
    found = timeline("%p = f32[25]{0} parameter(0)", work("before", 5), f"ROOT {loop}", more=body)
    assert len(found.transfers) == 3
    each = found.transfers[0].takes
    begins = [5e-6 + at * (each + 10e-6) for at in range(3)]
    assert [one.begins for one in found.transfers] == pytest.approx(begins)
    assert found.now == pytest.approx(5e-6 + 3 * (each + 10e-6))
    assert found.exposed == pytest.approx(3 * each)
