"""The examples of docs/targets.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuse.backends.xla.gpu.devices import MODELS
from fuse.backends.xla.targets.names import parse
from fuse.backends.xla.tpu.targets import GENERATIONS
from fuse.errors import ConfigError

TEXT = (Path(__file__).parents[2] / "docs" / "targets.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", TEXT, re.S))
def test_an_example_runs(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = parse(re.findall(r'compile_for\("(\w+)"', example)[0])
    try:
        target.compiler()
    except ConfigError as error:
        pytest.skip(f"the example needs a compiler: {error}")
    exec(compile(example, "docs/targets.md", "exec"), {})  # noqa: S102
    assert f"no {target.kind} ran" in capsys.readouterr().out


def test_every_target_is_named() -> None:
    for name in (*GENERATIONS, *MODELS):
        assert f"`{name}`" in TEXT
