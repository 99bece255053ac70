"""Which tests run which lines, recorded once for each file of tests and kept in ``build/``.

A line is kept by its function and its place in it, so that the record outlives edits elsewhere.
What only a process runs that a test starts is not seen; ``tests_of`` then names the room's files.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from tests.mutation.trees import BUILD, ROOT, Tree

ROOMS = {
    "fuse/plan": ("tests/plan", "tests/engine"),
    "fuse/trace": ("tests/trace", "tests/plan"),
    "fuse/engine": ("tests/engine",),
    "fuse/compile": ("tests/compile",),
    "backends/xla/rules": ("tests/backends",),
    "backends/numpy": ("tests/backends",),
    "cache": ("tests/cache",),
}
"""Where the tests of a folder are."""
OF_TABLES = {"backends": ("tests/backends/test_every_rule.py",)}
"""Files that ask what importing a folder makes, defaults of arguments among it."""
BESIDE = ("tests/programs", "tests/device", "tests/report")
"""Folders whose tests run the same code, through the device."""
SECONDS = 900.0
"""The longest that the tests of a file may take while they are recorded."""


def files() -> list[str]:
    """The files of tests, those of rooms first."""
    folders = dict.fromkeys([one for room in ROOMS.values() for one in room] + list(BESIDE))
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))]
    return [str(path.relative_to(ROOT)) for path in found]


def record(tree: Tree, file: str) -> None:
    """Run the tests of a file and keep which lines they run, unless that is known."""
    kept = _kept(file)
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        raw = kept.with_suffix(".raw")
        raw.unlink(missing_ok=True)
        tree.test(["-m", "not slow and not shipped", file], SECONDS, record=raw)
        found = json.loads(raw.read_text()) if raw.exists() else {"seconds": {}, "lines": {}}
        lines: dict[str, list[str]] = defaultdict(list)
        for source, of_file in found["lines"].items():
            places = dict(_places(ast.parse((tree.root / source).read_text())))
            for line, tests in of_file.items():
                if int(line) in places:
                    lines[f"{source}:{places[int(line)]}"] += [one for one in tests if one]
        kept.write_text(json.dumps({"seconds": found["seconds"], "lines": lines}))
        raw.unlink(missing_ok=True)


def _kept(file: str) -> Path:
    """Named after the file's text, and those of the files beside it whose tests it runs too."""
    text = (ROOT / file).read_text()
    named = sorted(set(re.findall(r"\btest_\w+", text)))
    beside = [(ROOT / file).with_name(f"{name}.py") for name in named]
    texts = [text, *(path.read_text() for path in beside if path.exists())]
    digest = hashlib.sha256("".join(texts).encode()).hexdigest()[:12]
    return BUILD / "recorded" / f"{file.replace('/', '-')}-{digest}.json"


def _places(tree: ast.AST, name: str = "") -> Iterator[tuple[int, str]]:
    """Each line of a function with ``function+place``; the innermost function comes last."""
    for node in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = f"{name}.{node.name}"
            if not isinstance(node, ast.ClassDef):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    yield line, f"{inner}+{line - node.lineno}"
        yield from _places(node, inner)


class Recorded:
    """What was recorded of all files of tests."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lines: dict[str, list[str]] = defaultdict(list)
        self._functions: dict[str, list[str]] = defaultdict(list)
        for file in filter(Path.exists, map(_kept, files())):
            found = json.loads(file.read_text())
            self.seconds |= found["seconds"]
            for place, tests in found["lines"].items():
                known = [one for one in tests if one in found["seconds"]]
                self._lines[place] += known
                self._functions[place.partition("+")[0]] += known

    @cached_property
    def _focus(self) -> dict[str, int]:
        """How many lines a test runs: one that runs few is about them."""
        found: dict[str, int] = defaultdict(int)
        for tests in self._lines.values():
            for one in tests:
                found[one] += 1
        return found

    def tests_of(self, file: str, lines: range, seconds: float) -> list[str]:
        """Tests of these lines of a source, in about so many seconds: of every file the quick ones
        first. Without one, those of their function, and at last the files of its room. What asks
        about a table of rules comes before: importing it is no line of a test's."""
        of_tables = [one for room, of in OF_TABLES.items() if file.startswith(room) for one in of]
        places = dict(_places(ast.parse((ROOT / file).read_text())))
        within = [places[line] for line in lines if line in places]
        found = {one for place in within for one in self._lines.get(f"{file}:{place}", ())}
        if not found:
            names = {place.partition("+")[0] for place in within}
            found = {one for name in names for one in self._functions.get(f"{file}:{name}", ())}
        if found:
            return [*of_tables, *self._quickest(found, seconds)]
        return [one for room, of in ROOMS.items() if file.startswith(room) for one in of]

    def _quickest(self, tests: set[str], seconds: float) -> list[str]:
        by_file: dict[str, list[str]] = defaultdict(list)
        for one in sorted(tests, key=lambda one: (self.seconds[one] * self._focus[one], one)):
            by_file[one.partition("::")[0]].append(one)
        turns = [(turn, one) for of in by_file.values() for turn, one in enumerate(of)]
        chosen, left = [], seconds
        for _, one in sorted(turns, key=lambda pair: (pair[0], self.seconds[pair[1]])):
            if self.seconds[one] <= left or not chosen:
                chosen.append(one)
                left -= self.seconds[one]
        return chosen
