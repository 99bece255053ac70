"""``docs/adding-an-operator.md``: what it quotes is there, what it shows runs, as it says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from fuse.backends.numpy.rules import registry as numpy_registry
from fuse.backends.xla.rules import registry as xla_registry
from fuse.commands.cli import COMMANDS
from tests.backends import numpy_harness, rule_harness
from tests.coverage import command

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding-an-operator.md"


class Block(NamedTuple):
    language: str
    file: str
    text: str
    line: int


def blocks() -> list[Block]:
    """The fenced blocks in order; after the language may stand the file that is quoted."""
    page = PAGE.read_text()
    return [
        Block(found[1], found[2].strip(), found[3], page[: found.start(3)].count("\n"))
        for found in re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ]


QUOTES = [block for block in blocks() if block.file]


@pytest.mark.parametrize("quote", QUOTES, ids=[f"{q.file}-{q.line}" for q in QUOTES])
def test_what_it_quotes_is_in_the_file(quote: Block) -> None:
    assert quote.text in (ROOT / quote.file).read_text()


def test_it_quotes_rules_of_both_backends() -> None:
    for backend in ("xla", "numpy"):
        quoted = "".join(q.text for q in QUOTES if q.file.startswith(f"backends/{backend}/"))
        assert '@rule("threshold")' in quoted


BACKENDS = [("xla", xla_registry, rule_harness), ("numpy", numpy_registry, numpy_harness)]


@pytest.mark.parametrize(("backend", "registry", "harness"), BACKENDS, ids=["xla", "numpy"])
def test_a_quoted_rule_makes_the_operator(
    backend: str, registry: Any, harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's own text, run among the names of its file, becomes the operator's rule."""
    (quote,) = [
        quote
        for quote in QUOTES
        if quote.file.startswith(f"backends/{backend}/") and '@rule("threshold")' in quote.text
    ]
    before = registry.RULES["threshold"]
    names = dict(before.__globals__)
    with pytest.raises(ValueError, match="operator aten::threshold has two"):
        exec(quote.text, names)
    monkeypatch.delitem(registry.RULES, "threshold")
    exec(quote.text, names)
    made = registry.RULES["threshold"]
    assert made is not before
    monkeypatch.setitem(harness.RULES, "threshold", made)
    harness.check("threshold", torch.tensor([-1.0, -0.0, 2.0, torch.nan]), 0.0, 7.0)


def test_what_it_shows_runs_as_it_says() -> None:
    """The blocks without a file, one after the other; a text block is what the last one printed."""
    names: dict[str, object] = {}
    printed, ran, compared = "", 0, 0
    for block in blocks():
        if block.language == "python" and not block.file:
            output = io.StringIO()
            code = compile("\n" * block.line + block.text, str(PAGE), "exec")
            with contextlib.redirect_stdout(output):
                exec(code, names)
            printed, ran = output.getvalue(), ran + 1
        elif block.language == "text":
            assert printed == block.text
            compared += 1
    assert (ran, compared) == (3, 2)


def test_its_commands_exist() -> None:
    (block,) = [block for block in blocks() if block.language == "console"]
    prompt, program, name, *arguments = shlex.split(block.text)
    assert (prompt, program) == ("$", "fuse")
    assert name in COMMANDS
    options = command._parser().parse_args(arguments)
    assert options.op == ["nn.functional.threshold"]
    assert len(options.backend) == 2


def test_every_file_it_names_exists() -> None:
    named = re.findall(r"`((?:backends|fuse|tests|docs)/[\w/.-]*)`", PAGE.read_text())
    assert len(named) > 8
    for name in named:
        assert (ROOT / name).exists(), name
