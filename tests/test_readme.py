"""What the README lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import fuse
from fuse import config
from fuse.commands.cli import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
VARIABLE = re.compile(r"\bFUSE_[A-Z_]+\b")


def test_every_setting_is_listed_and_every_listed_one_exists() -> None:
    read = set(VARIABLE.findall(Path(config.__file__).read_text()))
    settings = README.partition("## Settings")[2].partition("\n## ")[0]
    assert set(VARIABLE.findall(settings)) == read


def test_every_name_it_uses_is_public() -> None:
    used = set(re.findall(r"\bfuse\.([A-Za-z]\w*)\(", README))
    assert used
    assert used <= set(fuse.__all__)


def test_every_command_it_uses_exists() -> None:
    used = set(re.findall(r"`fuse (\w+)", README))
    assert used
    assert used <= set(COMMANDS)


def test_every_target_it_uses_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"\bmake (demo|test|check|bench|format)\b", README))
    assert {"demo", "test"} <= used <= targets
