"""What the guides and the public docstrings show runs, and prints what they say."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import re
import textwrap
from pathlib import Path

import pytest
import torch

import fuse
from tests.test_site import DOCS, PUBLIC

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
EXAMPLES = {
    name: [textwrap.dedent(found) for found in EXAMPLE.findall(inspect.getdoc(value) or "")]
    for name, value in PUBLIC.items()
}
NEEDS = {"fuse.compile_for": "libtpu", "fuse.compile_pod": "libtpu", "fuse.search_pod": "libtpu"}
RANKS = {"fuse.distributed.training.train"}  # tests/distributed/test_training.py runs such loops


def run(text: str, path: Path, names: dict[str, object]) -> str:
    """What the text prints, run as the file ``path``: kernels and Dynamo read sources."""
    path.write_text(text)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, str(path), "exec"), names)
    return printed.getvalue()


@pytest.mark.parametrize(("name", "outputs"), [("index", 2), ("train", 5), ("serve", 2)])
def test_a_page_runs_as_one_program(name: str, outputs: int, tmp_path: Path) -> None:
    fuse.reset_stats()  # of tests before, which the pages' counts are not about
    names: dict[str, object] = {}
    printed, compared = "", 0
    for number, (language, text) in enumerate(BLOCK.findall((DOCS / f"{name}.md").read_text())):
        if language == "python":
            assert printed == "", "the page does not show what the block before prints"
            printed = run(text, tmp_path / f"block_{number}.py", names)
        elif language == "text":
            assert printed == text
            printed, compared = "", compared + 1
    assert compared == outputs


@pytest.mark.parametrize("name", [name for name, found in EXAMPLES.items() if found])
def test_an_example_of_a_docstring_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = EXAMPLES[name]
    if name in RANKS:
        compile(text, name, "exec")
        return
    if importlib.util.find_spec(NEEDS.get(name, "torch")) is None:
        pytest.skip(f"the example needs {NEEDS[name]}: pip install 'torch-fuse[tpu]'")
    printed = run(text, tmp_path / "example.py", {"torch": torch, "fuse": fuse})
    assert printed.splitlines() == re.findall(r"print\(.*\)  # (.*)", text)
