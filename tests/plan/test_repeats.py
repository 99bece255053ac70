"""Repeats and segments, drawn as strings: one letter an operation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from fuse.plan import segment
from fuse.plan.repeats import Repeat, find_repeats
from fuse.plan.segment import LONGEST, Outline, segments


def tokens(drawing: str) -> list[int]:
    return [ord(letter) for letter in drawing]


@pytest.mark.parametrize(
    ("drawing", "expected"),
    [
        # head, three layers, tail
        ("xyabcabcabcz", [Repeat(2, 3, 3)]),
        # forward layers, loss, backward layers
        ("abcabclpqrpqr", [Repeat(0, 3, 2), Repeat(7, 3, 2)]),
        # nothing comes twice in a row
        ("abcdefgh", []),
        # the whole stream is one repeat
        ("abababab", [Repeat(0, 3 - 1 + 2, 2)]),
    ],
)
def test_repeats_are_found(drawing: str, expected: list[Repeat]) -> None:
    assert find_repeats(tokens(drawing), smallest=3) == expected


def test_short_blocks_are_joined() -> None:
    found = find_repeats(tokens("a" * 40), smallest=8)
    assert found == [Repeat(0, 8, 5)]


def test_blocks_are_joined_so_that_little_is_left_over() -> None:
    # 19 pairs in blocks of 4 or more pairs: 4 x 4 leaves 3 pairs, 3 x 6 leaves one
    assert find_repeats(tokens("ab" * 19), smallest=8) == [Repeat(0, 12, 3)]
    assert find_repeats(tokens("ab" * 21), smallest=8) == [Repeat(0, 14, 3)]


def test_what_comes_shortly_before_an_updates_repeats_belongs_to_the_work_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"SMALLEST_LIGHT": 6, "LIGHT": 8}.items():
        monkeypatch.setattr(segment, name, value)

    def drawn(head: str, update: str, anchors: str = "MNOPQ") -> list[str]:
        text = anchors + head + update
        light = [(len(anchors), len(text))]
        found = segment.segments(segment.Outline(tokens(text), [0] * len(text), light, 0))
        return [text[piece.start : piece.stop] for piece in found]

    assert drawn("xyz", "uvw" * 6) == ["MNOPQxyz", *["uvwuvw"] * 3]
    assert drawn("", "uvw" * 6) == ["MNOPQ", *["uvwuvw"] * 3]
    assert drawn("hijklmnop", "uvw" * 6) == ["MNOPQ", "hijklmnop", *["uvwuvw"] * 3]
    # Blocks end with the stretch: what they leave over comes before them.
    assert drawn("xy", "uvw" * 6 + "u") == ["MNOPQxyu", *["vwuvwu"] * 3]
    assert drawn("xy", "uvw" * 6 + "z") == ["MNOPQxy", *["uvwuvw"] * 3, "z"]
    assert drawn("xyz", "uvwrst") == ["MNOPQ", "xyzuvwrst"]  # nothing repeats


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_every_block_of_a_repeat_is_the_same(stream: list[int]) -> None:
    end = 0
    for repeat in find_repeats(stream, smallest=2):
        assert repeat.start >= end and repeat.count >= 2
        end = repeat.stop
        blocks = [
            stream[repeat.start + k * repeat.period : repeat.start + (k + 1) * repeat.period]
            for k in range(repeat.count)
        ]
        assert all(block == blocks[0] for block in blocks)
    assert end <= len(stream)


def test_a_short_trace_is_one_segment() -> None:
    found = segments(Outline(tokens("abcabc"), [0] * 6, [], whole=6))
    assert [(s.start, s.stop) for s in found] == [(0, 6)]
    assert "within 6" in found[0].reason


def test_a_long_trace_is_cut_at_its_blocks() -> None:
    block = "abcdefghijklm"
    found = segments(Outline(tokens("xy" + block * 3 + "z"), [0] * 42, [], whole=10))
    assert [(s.start, s.stop) for s in found] == [(0, 2), (2, 15), (15, 28), (28, 41), (41, 42)]
    assert found[1].reason == "block 1 of 3, 13 operations each"


def test_a_long_stretch_without_repeats_is_cut_where_little_is_alive() -> None:
    length = LONGEST + 200
    alive = [1000] * length
    alive[LONGEST - 50] = 7
    found = segments(Outline(list(range(length)), alive, [], whole=10))
    assert [(s.start, s.stop) for s in found] == [(0, LONGEST - 49), (LONGEST - 49, length)]
    assert "7 bytes alive" in found[0].reason


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.integers(1, 60))
def test_segments_cover_the_trace_in_order(stream: list[int], whole: int) -> None:
    found = segments(Outline(stream, [0] * len(stream), [], whole))
    assert [s.start for s in found] == [0, *(s.stop for s in found[:-1])]
    assert found[-1].stop == len(stream)
