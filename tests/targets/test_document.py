"""The examples of docs/targets.md."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "targets.md").read_text()


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="the examples need libtpu, 0.7 GB: pip install 'torch-fuse[tpu]'",
)
@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", TEXT, re.S))
def test_an_example_runs(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "docs/targets.md", "exec"), {})  # noqa: S102
    assert "no TPU ran" in capsys.readouterr().out


def test_every_target_is_named() -> None:
    from fuse.backends.xla.tpu.targets import GENERATIONS  # noqa: PLC0415

    for name in GENERATIONS:
        assert f"`{name}`" in TEXT
