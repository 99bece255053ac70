"""The examples of docs/compile.md, in order, as one program."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import fuse

DOCUMENT = Path(__file__).parents[2] / "docs" / "compile.md"


@pytest.mark.filterwarnings("ignore")
def test_the_examples_run_and_print_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # one writes a file
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(examples) >= 4
    file = tmp_path / "examples.py"  # Dynamo reads sources
    file.write_text("\n".join(examples))
    fuse.reset_stats()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "examples"})
    promised = re.findall(r"print\(.*\)  # (.*)", file.read_text())
    assert printed.getvalue().splitlines() == promised
