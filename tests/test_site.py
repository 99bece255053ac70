"""The documentation site: what its navigation, its reference and its docstrings have to hold.

``make docs`` builds it, and finds dead links; none of it is needed here.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fuse
from fuse.commands.cli import COMMANDS
from fuse.distributed import joined, training

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
CONFIGURATION = (ROOT / "mkdocs.yml").read_text()
REFERENCE = (DOCS / "api.md").read_text()


def functions_of(module: Any, names: list[str]) -> dict[str, Callable[..., Any]]:
    return {f"{module.__name__}.{name}": getattr(module, name) for name in names}


def named(module: Any) -> list[str]:
    """Functions and classes of a module's own, by their names."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


PUBLIC = {
    **functions_of(fuse, [name for name in fuse.__all__ if name != "__version__"]),
    **functions_of(torch.tpu, named(torch.tpu)),
    **functions_of(training, ["train"]),
    **functions_of(joined, ["capture", "agreed", "compile_for", "run"]),
}


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = CONFIGURATION[CONFIGURATION.index("\nnav:") :]
    listed = Counter(re.findall(r"([\w-]+\.md)$", navigation, re.MULTILINE))
    assert sorted(listed) == PAGES
    assert set(listed.values()) == {1}


def test_a_page_begins_with_its_title() -> None:
    for name in PAGES:
        page = (DOCS / name).read_text()
        prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
        assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1, name
        assert page.startswith("# "), name


def test_the_reference_has_every_public_name() -> None:
    shown = re.findall(r"^::: fuse\.(\w+)$", REFERENCE, re.MULTILINE)
    assert sorted(shown) == sorted(set(shown))
    assert {*shown, "__version__"} == {*fuse.__all__, "errors"}


def test_the_commands_are_those_that_there_are() -> None:
    page = (DOCS / "commands.md").read_text()
    rows = re.findall(r"^\| `fuse (\w+)` \| ([^:|]+)", page, re.MULTILINE)
    assert {name: what.strip() for name, what in rows} == {
        name: what for name, (_, what) in COMMANDS.items()
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_docstring_says_what_goes_in(name: str) -> None:
    """Every argument has a line in the section on arguments, in the signature's order."""
    taken = [*inspect.signature(PUBLIC[name]).parameters]
    text = documentation(PUBLIC[name])
    assert text, f"{name} has no docstring"
    if taken:
        assert "\nArgs:\n" in text, (
            f"{name} takes {taken}, and its docstring has no section 'Args:'"
        )
        section = text[text.index("\nArgs:\n") :].split("\n\n")[0]
        assert re.findall(r"^    (\w+): ", section, re.MULTILINE) == taken


def documentation(value: Any) -> str:
    """A docstring; of a class with how one is made, where its constructor says that."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        makers = [name for name in ("__init__", "__new__") if name in vars(value)]
        text += "".join(f"\n\n{inspect.getdoc(getattr(value, name)) or ''}" for name in makers)
    return text


def test_it_loads_nothing_from_elsewhere() -> None:
    assert "\n  font: false\n" in CONFIGURATION
    settings = re.sub(r"#.*", "", CONFIGURATION)
    assert not re.findall(r"https?://", settings)
    for name in PAGES:
        page = (DOCS / name).read_text()
        assert not re.findall(r"!\[[^\]]*\]\(https?:|<(?:script|img|iframe|link)\b", page), name
