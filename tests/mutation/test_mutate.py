"""What is drawn, what is not, and how one is told from another."""

from __future__ import annotations

from textwrap import dedent

from tests.mutation.mutate import mutants

SOURCE = dedent('''
    """A docstring of 3 words."""
    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        LIMIT = 1

    @lru_cache(maxsize=8)
    def bound(x: "tuple[1, 2]", most: int = 3) -> bool:
        """Text with 5."""
        assert most > 0
        if x < most and x:
            raise ValueError(f"{x + 1} is past " + str(7))
        for pair in zip(x, x, strict=True):
            continue
        return (x, -most)

    class Named:
        def __repr__(self) -> str:
            return "4" + str(9)
''')


def changed(source: str) -> list[tuple[str, str]]:
    return [(one.before.strip(), one.after.strip()) for one in mutants("a.py", source)]


def test_what_is_drawn() -> None:
    assert [after for _, after in changed(SOURCE)] == [
        'def bound(x: "tuple[1, 2]", most: int = 4) -> bool:',
        "if (x < most or x):",
        "if (x):",
        "if (x < most):",
        "if (x <= most) and x:",
        "break",
        "return (-most,)",
        "return (x,)",
        "return (x, (most))",
    ]


def test_elements_of_an_index_and_of_several_targets_stay() -> None:
    found = [after for _, after in changed("a, b = x[:, 1], 2\n")]
    assert found == ["a, b = x[:, 2], 2", "a, b = x[:, 1], 3"]


def test_a_mutant_is_the_source_but_for_its_lines_and_is_named_by_them() -> None:
    first, second = mutants("a.py", "x = 1\nx = 1\n")
    assert first.text == "x = 2\nx = 1\n" and second.text == "x = 1\nx = 2\n"
    assert first.name != second.name
    moved, *_ = mutants("a.py", "\n\nx = 1\n")
    assert moved.name == first.name and moved.difference().startswith("a.py:3\n- x = 1")
