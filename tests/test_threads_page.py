"""``docs/threads.md`` names every lock of the sources and every file that starts a thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/threads.md").read_text()
SOURCES = [path for top in ("fuse", "backends", "cache") for path in (ROOT / top).rglob("*")]
MUTEX = re.compile(r"^( *)(?:mutable |static |inline )*std::(?:shared_|recursive_)?mutex (\w+)")
STATIC_MUTEX = re.compile(r"static auto\* (\w+) = new std::(?:shared_)?mutex")
CLASS = re.compile(r"^( *)(?:class|struct) ([\w:]+)(?: final)?(?: : .*)? \{")
LOCK = re.compile(
    r"^( *)(?:self\.)?(\w+) = threading\.(?:R?Lock|Condition|(?:Bounded)?Semaphore)\("
)
PYTHON_CLASS = re.compile(r"^class (\w+)")
STARTS = re.compile(r"std::thread\(|threading\.Thread\(|ThreadPoolExecutor\(|\brun_in_thread\(")


def mutexes(path: Path) -> Iterator[str]:
    """``Class::member`` of each mutex; ``file::name`` of those that are no members."""
    classes: list[tuple[int, str]] = []
    for line in path.read_text().splitlines():
        if found := CLASS.match(line):
            classes.append((len(found[1]), found[2]))
        elif found := STATIC_MUTEX.search(line):
            yield f"{path.stem}::{found[1]}"
        elif found := MUTEX.match(line):
            owners = [name for indent, name in classes if indent < len(found[1])]
            yield f"{owners[-1] if owners else path.stem}::{found[2]}"


def locks(path: Path) -> Iterator[str]:
    """``Class.attribute`` of each lock; ``module.name`` of those that are a module's."""
    owner = path.stem
    for line in path.read_text().splitlines():
        if found := PYTHON_CLASS.match(line):
            owner = found[1]
        elif found := LOCK.match(line):
            yield f"{owner if 'self.' in line else path.stem}.{found[2]}"


def of_sources() -> set[str]:
    found: set[str] = set()
    for path in SOURCES:
        if path.suffix in (".h", ".cpp"):
            found.update(mutexes(path))
        elif path.suffix == ".py":
            found.update(locks(path))
    return found


def test_every_lock_is_on_the_page_and_every_one_on_the_page_exists() -> None:
    named = set(re.findall(r"^\| `([\w:.]+)` \(`[\w/.]+`\) \|", PAGE, re.MULTILINE))
    named.add("Shares::mutex_")  # in a sentence
    assert "`Shares::mutex_`" in PAGE
    assert named == of_sources()


def test_none_is_declared_in_a_way_that_is_not_seen() -> None:
    """As many as declarations of the types: of C++ without references and arguments."""
    of_cpp = re.compile(r"std::(?:shared_|recursive_|timed_)*mutex\b(?! ?[&>])")
    of_python = re.compile(r"\bthreading\.(?:R?Lock|Condition|(?:Bounded)?Semaphore)\(")
    for path in SOURCES:
        if path.suffix in (".h", ".cpp"):
            assert len(of_cpp.findall(path.read_text())) == len(list(mutexes(path))), path
        elif path.suffix == ".py":
            assert len(of_python.findall(path.read_text())) == len(list(locks(path))), path


def test_every_lock_in_the_order_is_in_a_table() -> None:
    order = PAGE[PAGE.index("## Order") :].split("```")[1]
    named = set(re.findall(r"[\w:]+(?:::|\.)\w+", order))
    assert len(named) > 15
    assert named <= of_sources()


def test_every_file_that_starts_a_thread_is_on_the_page() -> None:
    table = PAGE[PAGE.index("## Threads") : PAGE.index("## Order")]
    files = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if path.suffix in (".py", ".h", ".cpp") and STARTS.search(path.read_text())
    }
    named = set(re.findall(r"\(`([\w/.]+)`\)", table))
    assert len(files) > 10
    # The cache's writers are threads of a class in another file; the page says where they are made.
    missing = {file for file in files if not any(file.endswith(one) for one in named)}
    strangers = {one for one in named if not any(file.endswith(one) for file in files)}
    assert (missing, strangers) == (set(), set())


def test_every_name_of_a_thread_is_on_the_page() -> None:
    text = "".join(path.read_text() for path in SOURCES if path.suffix == ".py")
    for name in set(re.findall(r'"(fuse-(?:cache-)?[a-z]+)"', text)):
        used = re.search(rf'(?:Thread|run_in_thread|Executor)\([^)]*"{name}"', text)
        assert used is None or f"`{name}`" in PAGE, name
