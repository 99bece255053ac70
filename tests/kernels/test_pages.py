"""``docs/kernels.md`` and ``docs/from-torch-tpu.md``: what they show runs, and is as they say."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from pathlib import Path

import pytest

from fuse.errors import FuseError

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "examples"), [("kernels", 6), ("from-torch-tpu", 1)])
def test_the_examples_run_and_print_what_is_printed(name, examples, tmp_path):
    page = (ROOT / "docs" / f"{name}.md").read_text()
    names: dict[str, object] = {}
    printed, compared = None, 0
    for found in BLOCK.finditer(page):
        language, text = found.groups()
        if language == "python":
            path = tmp_path / f"{name}_{found.start()}.py"
            path.write_text(text)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, str(path), "exec"), names)
            printed = output.getvalue()
        elif printed is not None:
            assert printed == text
            printed, compared = None, compared + 1
    assert compared == examples


ROW = re.compile(r"^\| ((?:`[^`|]+`(?:, )?)+) \| (same|differs|no) \|", re.MULTILINE)


def rows() -> dict[str, str]:
    """Every name of the page's tables, and what it says of it."""
    page = (ROOT / "docs" / "from-torch-tpu.md").read_text()
    return {
        name: verdict
        for names, verdict in ROW.findall(page)
        for name in re.findall(r"`([^`]+)`", names)
    }


def test_every_name_is_as_the_page_says():
    found = rows()
    assert len(found) > 60
    for name, verdict in found.items():
        owner, _, attribute = name.rpartition(".")
        module = importlib.import_module(owner)
        if verdict == "no":
            with pytest.raises((AttributeError, FuseError), match=re.escape(attribute)):
                getattr(module, attribute)()
        else:
            assert getattr(module, attribute) is not None, name
