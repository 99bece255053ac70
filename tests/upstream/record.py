"""What is written down of a file's tests: a line of JSON for each begin and each end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PASSED: Final = "passed"
EXPECTED: Final = "expected failure"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
DIED: Final = "the process ended"
HUNG: Final = "no end in time"
LARGE: Final = "too much memory"
RIGHT: Final = (PASSED, EXPECTED)
LONGEST: Final = 4000
"""Characters of a traceback that are kept."""


@dataclass(frozen=True)
class Outcome:
    """How a test ended, and the traceback's end or the reason."""

    result: str
    why: str = ""


class Log:
    """One file's results on one device; lines are appended whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _add(self, **fields: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(fields) + "\n")

    def _lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def planned(self, tests: int) -> None:
        """How many tests the file has."""
        self._add(tests=tests)

    def began(self, name: str) -> None:
        """A test begins."""
        self._add(begin=name)

    def ended(self, name: str, result: str, why: str) -> None:
        """A test has ended."""
        self._add(end=name, result=result, why=why)

    def finished(self) -> None:
        """No test is left."""
        self._add(finished=True)

    def begun(self) -> set[str]:
        """Tests that have begun."""
        return {line["begin"] for line in self._lines() if "begin" in line}

    def unfinished(self) -> str | None:
        """The test that has begun last and not ended."""
        last = None
        for line in self._lines():
            if "begin" in line:
                last = str(line["begin"])
            elif line.get("end") == last:
                last = None
        return last

    def is_finished(self) -> bool:
        """Whether no test is left."""
        return any("finished" in line for line in self._lines())

    def outcomes(self) -> dict[str, Outcome]:
        """Each test's end, by its name on the CPU."""
        return {
            line["end"]: Outcome(line["result"], line["why"])
            for line in self._lines()
            if "end" in line
        }

    def tests(self) -> int:
        """How many tests the file has; 0 if it was never read to its end."""
        return max((line["tests"] for line in self._lines() if "tests" in line), default=0)


def passed(path: Path, also: tuple[str, ...] = ()) -> set[str]:
    """The tests that did what they should, or whose results are of ``also``."""
    return {name for name, one in Log(path).outcomes().items() if one.result in (*RIGHT, *also)}
