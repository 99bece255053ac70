"""Packs of standard operations: what they hold is what a program in strict mode asks for."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fuse
from fuse.aot import command as aot, library
from fuse.aot.report import open_target
from fuse.cache.entry import unpack
from fuse.device import lazy
from fuse.engine.targeted import Targeted
from tests.targets.fakes import FakeTarget

Make = Callable[..., FakeTarget]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that run in a moment: which sizes there are is no part of what is tested."""
    for name, sizes in {"ROWS": (8,), "WIDTHS": (16,), "HEADS": ((2, 8),), "LENGTHS": (8,)}.items():
        monkeypatch.setattr(library, name, sizes)


def packed(tmp_path: Path, code: int = 0) -> tuple[Targeted, dict[str, bytes]]:
    """The library's target, and the members of its pack by digest."""
    targeted, pack = open_target("fake"), tmp_path / "pack.zip"
    assert aot.write_library(targeted, pack) == code
    with zipfile.ZipFile(pack) as bundle:
        return targeted, {Path(name).stem: bundle.read(name) for name in bundle.namelist()}


@pytest.mark.slow
def test_every_operation_is_an_entry_under_the_key_of_a_host_of_the_target(
    fake: Make, small: None, tmp_path: Path
) -> None:
    fake()
    targeted, held = packed(tmp_path)
    chunks = {chunk for planned in targeted.plans for chunk in planned.chunks}
    keys = [targeted.host_key(chunk) for chunk in chunks]
    assert len(keys) > 2 * (len(library.UNARY) + len(library.BINARY) + 2 * len(library.REDUCTIONS))
    for key in keys:
        entry = unpack(held[key.digest], digest=key.digest, secret=None, signed=False)
        assert entry.payload == b"an executable"
    assert fuse.get_mode() == "fused"
    assert lazy.engine().targeted is None


@pytest.mark.slow
def test_a_program_in_strict_mode_asks_for_these_entries(
    fake: Make, small: None, tmp_path: Path
) -> None:
    fake()
    _, held = packed(tmp_path)
    target = fake()
    x, weight = torch.rand(8, 16).to("tpu"), torch.rand(64, 16).to("tpu")
    bias = torch.rand(64).to("tpu")
    fuse.set_mode("strict")
    try:
        report = fuse.compile_for(
            "fake",
            lambda: (torch.nn.functional.linear(x, weight, bias), x.exp(), x.sum(-1)),
            advice=False,
        )
    finally:
        fuse.set_mode("fused")
    assert target.compiled
    asked = [report._targeted.host_key(chunk).digest for chunk in target.compiled]
    assert len(asked) == 3
    assert set(asked) <= set(held)


def test_every_name_says_which_operation_it_is(small: None) -> None:
    names = [name for name, _ in library.entries("tpu")]
    assert "linear(float32[8, 16], float32[64, 16], float32[64])" in names
    assert "softmax(bfloat16[8, 16])" in names


def test_a_refused_operation_is_named_and_the_rest_is_packed(
    fake: Make, small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(refused=("tanh",))
    _, held = packed(tmp_path, code=1)
    assert "aten::tanh(float32[8,16]): no tanh" in capsys.readouterr().out
    assert held


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--library", "v5e"], "--library takes --pack FILE and no program"),
        (["--library", "v5e", "--pack", "p.zip", "x.py"], "--library takes --pack FILE"),
        (["--target", "v5e"], "name a target"),
        (["x.py"], "name a target"),
    ],
)
def test_what_the_command_needs_is_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        aot.main(arguments)
    assert said in capsys.readouterr().err
