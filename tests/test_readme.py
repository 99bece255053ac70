"""What the README and the pages beside it list is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fuse
from fuse import config
from fuse.commands.cli import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SETTINGS = (ROOT / "docs/settings.md").read_text()
VARIABLE = re.compile(r"\bFUSE_[A-Z_]+\b")


def test_every_setting_is_listed_and_every_listed_one_exists() -> None:
    read = set(VARIABLE.findall(Path(config.__file__).read_text())) - set(config.OLD_NAMES)
    assert set(VARIABLE.findall(SETTINGS)) == read
    assert set(VARIABLE.findall(README)) <= read


def test_settings_are_few_and_none_of_them_is_one_of_before() -> None:
    assert len(set(VARIABLE.findall(SETTINGS))) <= 20
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        assert not set(VARIABLE.findall(page.read_text())) & set(config.OLD_NAMES), page.name


def test_a_setting_of_before_says_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, instead in config.OLD_NAMES.items():
        monkeypatch.setenv(name, "1")
        config.warn_of_old_names.cache_clear()
        with pytest.warns(FutureWarning) as caught:
            config.warn_of_old_names()
        assert str(caught[0].message) == f"{name} is no setting any more: {instead}"
        monkeypatch.delenv(name)


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


def test_every_file_that_the_architecture_names_exists() -> None:
    page = (ROOT / "docs/ARCHITECTURE.md").read_text()
    words = page[page.index("## Words") : page.index("## The flow of one call")]
    assert len(page.splitlines()) - len(words.splitlines()) <= 150
    roots = [ROOT, ROOT / "fuse", ROOT / "fuse/device/csrc", ROOT / "backends", ROOT / "cache"]
    roots += [path for root in roots for path in root.iterdir() if path.is_dir()]
    named = set(re.findall(r"[`/]([\w/]+\.(?:py|cpp))`", page))
    assert len(named) > 30
    missing = [one for one in named if not any((root / one).exists() for root in roots)]
    assert missing == []


def test_every_page_that_a_page_links_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links {link}"


def test_every_decision_has_a_date_and_a_status() -> None:
    page = (ROOT / "docs/decisions.md").read_text()
    records = re.findall(r"^### (.+)\n\n(.+)", page, re.MULTILINE)
    assert len(records) == page.count("\n### ") > 50
    status = r"Status: (accepted|rejected|measured|superseded by)\b"
    for title, line in records:
        assert re.match(r"\d{4}-\d\d-\d\d: ", title), title
        assert re.match(status, line), title


def test_words_are_in_order_and_each_is_a_line() -> None:
    page = (ROOT / "docs/ARCHITECTURE.md").read_text()
    words = page[page.index("## Words") : page.index("## The flow of one call")]
    table = re.findall(r"^\| (\S.*?) \| (.+) \|$", words, re.MULTILINE)[2:]
    assert len(table) > 50
    assert [word for word, _ in table] == sorted((word for word, _ in table), key=str.lower)
