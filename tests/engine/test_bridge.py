"""The native core calls the engine by name: what C++ says, ``Bridge`` says too."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuse.device import lazy
from fuse.engine.bridge import Bridge
from fuse.engine.engine import Engine

SOURCES = Path(__file__).parents[2] / "fuse" / "device" / "csrc"
CALL = re.compile(r'call_engine\(\s*"(\w+)",\s*pack\(')
METHODS = {name for name, value in vars(Bridge).items() if inspect.isfunction(value)
           and not name.startswith("_")}  # fmt: skip


def sources() -> Iterator[str]:
    for path in SOURCES.rglob("*"):
        if path.suffix in {".cpp", ".h"}:
            yield re.sub(r"//[^\n]*", "", path.read_text())


def arguments(text: str) -> int:
    """How many arguments stand before the parenthesis that closes the call ``text`` begins in."""
    depth, commas = 0, 0
    for at, letter in enumerate(text):
        if letter in "({[":
            depth += 1
        elif letter in ")}]":
            if depth == 0:
                return commas + 1 if text[:at].strip() else 0
            depth -= 1
        commas += letter == "," and depth == 0
    raise AssertionError("the call has no end")


def called() -> dict[str, set[int]]:
    """By name, the numbers of arguments with which the core calls it."""
    found: dict[str, set[int]] = {}
    for text in sources():
        for match in CALL.finditer(text):
            found.setdefault(match[1], set()).add(arguments(text[match.end() :]))
    return found


def test_arguments_are_counted() -> None:
    assert [arguments(text) for text in (")", " a)", "a(b, c), d)", "{a, b}, c, d(e))")] == [
        0, 1, 2, 3,
    ]  # fmt: skip


def test_the_core_calls_what_the_bridge_has_and_nothing_else() -> None:
    every = sum(text.count("call_engine(") for text in sources())
    declared = sum(text.count("call_engine(const char*") for text in sources())
    assert sum(len(CALL.findall(text)) for text in sources()) == every - declared
    assert called().keys() == METHODS


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_core_calls_with_as_many_arguments_as_the_bridge_takes(name: str) -> None:
    taken = len(inspect.signature(getattr(Bridge, name)).parameters) - 1  # without self
    assert called()[name] == {taken}


def test_the_engine_has_the_bridges_methods() -> None:
    parts = {"plan", "host_fallback", "memory_info", "no_memory"}  # which each engine has of them
    own = METHODS - parts
    assert own <= set(vars(Engine))


def test_a_reason_that_there_is_not_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="^no trace is cut for the reason 'boredom'"):
        lazy.core().cut("boredom")
