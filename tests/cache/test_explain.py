from __future__ import annotations

from fuse.cache import Key
from fuse.cache.explain import explain

WANTED = Key.of({"program": "a\nb\nc", "jaxlib": "2", "platform": "cpu"}, "chunk 3")


def test_the_nearest_shares_most_fields() -> None:
    near = Key.of({"program": "a\nb\nc", "jaxlib": "1", "platform": "cpu"})
    far = Key.of({"program": "a\nb\nc", "jaxlib": "1", "platform": "gpu"})
    found = explain(WANTED, [far, near, far])
    assert found.nearest == near and found.compared == 3
    assert [(d.field, d.wanted, d.stored) for d in found.differences] == [("jaxlib", "2", "1")]
    assert found.text == (
        f"key {WANTED.digest[:12]} (chunk 3) missed; the nearest of 3 stored keys is "
        f"{near.digest[:12]}, which differs in 1 of 3 fields:\n  jaxlib: wanted '2', stored '1'"
    )


def test_programs_are_shown_at_their_first_differing_line() -> None:
    near = Key.of({"program": "a\nB\nc", "jaxlib": "2", "platform": "cpu"})
    far = Key.of({"program": "A\nb\nc", "jaxlib": "2", "platform": "cpu"})
    (difference,) = explain(WANTED, [far, near]).differences
    assert difference.line == 2
    assert difference.text == "program, line 2: wanted 'b', stored 'B'"


def test_a_program_that_ends_earlier() -> None:
    (difference,) = explain(
        WANTED, [Key.of(WANTED.as_dict() | {"program": "a\nb\nc\nd"})]
    ).differences
    assert difference.text == "program, line 3: wanted 'c', stored 'c'" or difference.line == 4


def test_long_lines_are_cut_around_the_difference() -> None:
    left = Key.of({"program": "x" * 5000 + "1" + "y" * 5000})
    right = Key.of({"program": "x" * 5000 + "2" + "y" * 5000})
    (difference,) = explain(left, [right]).differences
    assert "x1y" in difference.text and "x2y" in difference.text
    assert len(difference.text) < 300


def test_fields_that_only_one_side_has() -> None:
    other = Key.of({"program": "a\nb\nc", "jaxlib": "2", "cpu": "avx"})
    text = explain(WANTED, [other]).text
    assert "cpu: wanted (absent), stored 'avx'" in text
    assert "platform: wanted 'cpu', stored (absent)" in text


def test_nothing_to_compare_with_and_nothing_that_differs() -> None:
    assert explain(WANTED, []).text.endswith("missed: nothing is stored to compare it with.")
    found = explain(WANTED, [WANTED])
    assert found.differences == () and "is stored" in found.text
