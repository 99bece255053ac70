"""``fuse coverage`` itself: records, verdicts, the report, and workers that die or hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.coverage import command, expected, runner, special
from tests.coverage.expected import Expected, verdict
from tests.coverage.record import FAILED, HOST, NATIVE, Outcome, Record, load
from tests.coverage.report import DOCUMENT, share, tally, write

GOOD = Record("op", "add", 1.5, {"forward float32": Outcome(samples=4), "errors": Outcome()})
HOSTED = Record("op", "unique", 2.0, {"forward float32": Outcome(HOST, 2, ("_unique2", "sort"))})
BAD = Record(
    "op",
    "sort",
    0.25,
    {
        "forward float32": Outcome(samples=4),
        "gradient float32": Outcome(FAILED, 1, (), "Mismatched elements: 1 | 2"),
    },
)
DEAD = Record("module", "nn.Linear", 9.0, {"run": Outcome(FAILED, reason="the process died")})


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces the table of expected failures."""

    def replace(*entries: Expected) -> None:
        monkeypatch.setattr(expected, "EXPECTED", entries)

    return replace


# --- records -----------------------------------------------------------------


@pytest.mark.parametrize("record", [GOOD, HOSTED, BAD, DEAD], ids=lambda record: record.key)
def test_a_record_is_what_was_written(record: Record) -> None:
    line = record.to_line()
    assert "\n" not in line
    assert Record.from_line(line) == record


@pytest.mark.parametrize(
    "line", ["", "nothing", '{"database": "op"}', '{"database": "op", "entry": "a", "checks": 1}']
)
def test_other_text_is_no_record(line: str) -> None:
    with pytest.raises(ValueError):
        Record.from_line(line)


def test_the_last_record_of_an_entry_counts_and_a_torn_one_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert load(path) == {}
    later = Record("op", "add", 9.0, {"errors": Outcome(FAILED, reason="x")})
    path.write_text("\n".join([GOOD.to_line(), BAD.to_line(), later.to_line(), '{"datab']))
    assert load(path) == {"op:add": later, "op:sort": BAD}


def test_native_means_every_check() -> None:
    assert [record.native for record in (GOOD, HOSTED, BAD, DEAD)] == [True, False, False, False]
    assert [Outcome(status).agrees for status in (NATIVE, HOST, FAILED)] == [True, True, False]


# --- the verdict -------------------------------------------------------------


def test_a_stray_failure_is_wrong(table: Callable[..., None]) -> None:
    table()
    assert verdict([GOOD, HOSTED], "fused", "xla") == []
    assert verdict([GOOD, BAD, DEAD], "fused", "xla") == [
        "op:sort | gradient float32: Mismatched elements: 1 | 2",
        "module:nn.Linear | run: the process died",
    ]


def test_an_expected_failure_is_right_where_it_is_expected(table: Callable[..., None]) -> None:
    table(Expected("op:sort", "gradient float32", "ties", mode="fused", backend="numpy"))
    assert verdict([BAD], "fused", "numpy") == []
    for mode, backend in (("fused", "xla"), ("debug", "numpy")):
        assert len(verdict([BAD], mode, backend)) == 1


def test_an_unexpected_pass_is_wrong(table: Callable[..., None]) -> None:
    table(Expected("op:add", "errors", "raised later"))
    assert verdict([GOOD], "strict", "xla") == [
        "op:add | errors: passes, but is expected to fail (raised later); "
        "take it out of fuse/coverage/expected.py"
    ]


def test_an_expectation_of_a_check_that_is_not_there_is_wrong(table: Callable[..., None]) -> None:
    table(Expected("op:add", "forward float23", "misspelt"))
    assert verdict([GOOD], "fused", "xla") == [
        "op:add | forward float23: there is no such check (misspelt)"
    ]
    assert verdict([GOOD], "fused", "xla", quick=True) == []
    assert verdict([BAD], "fused", "xla", quick=True) != []


def test_every_exclusion_and_exception_is_of_an_entry_that_exists() -> None:
    keys = command._keys()
    assert len(keys) > 800
    for pattern in special.EXCLUDED:
        assert any(special.excluded(key) == special.EXCLUDED[pattern] for key in keys), pattern
    named = special.UNINITIALISED | special.AMBIGUOUS | special.DISTINCT | special.WITHOUT_ONEDNN
    named |= set(special.TIES) | set(special.TOLERANCE) | {e.key for e in expected.EXPECTED}
    gone = {"op:qr"} if not hasattr(torch.ops.aten, "qr") else set()  # from PyTorch 2.15 on
    assert named - set(keys) <= gone


# --- the report --------------------------------------------------------------

KEYS = ["op:add", "op:unique", "op:sort", "op:sparse.mm.reduce", "module:nn.Linear"]


def everything(name: str) -> bool:
    return True


def test_totals() -> None:
    records = {record.key: record for record in (GOOD, HOSTED, BAD, DEAD)}
    assert tally(records, KEYS, "op", everything) == (3, 2, 1)
    assert tally(records, KEYS, "op", lambda name: name == "errors") == (1, 1, 1)
    assert tally(records, KEYS, "op", lambda name: name.startswith("forward")) == (3, 3, 2)
    # A process that died counts as a failure of every kind of check.
    assert tally(records, KEYS, "module", lambda name: name == "training") == (1, 0, 0)
    assert tally(records, KEYS, "optim", everything) == (0, 0, 0)


def test_the_report(tmp_path: Path, table: Callable[..., None]) -> None:
    table(Expected("op:sort", "gradient float32", "ties"))
    lines = "".join(record.to_line() + "\n" for record in (GOOD, HOSTED, BAD, DEAD))
    (tmp_path / "xla-fused.jsonl").write_text(lines)
    document = tmp_path / "docs" / "coverage.md"
    write(tmp_path, KEYS, document)
    text = document.read_text()
    for row in (
        "| xla | debug | not run | | | |",
        "| xla | fused | forward | 3 | 3 (100.0%) | 2 (66.7%) |",
        "| xla | fused | gradient | 1 | 0 (0.0%) | 0 (0.0%) |",
        "| xla | fused | modules | 1 | 0 (0.0%) | 0 (0.0%) |",
        "- ties: `op:sort` gradient float32",
        "- `op:sparse.mm.reduce`: takes sparse tensors, of which PyTorch's own test files are run",
        "| entry | xla fused |",
        "| op:add | native |",
        "| op:unique | host: `_unique2`, `sort` |",
        "| op:sort | fails gradient float32: Mismatched elements: 1 \\| 2 |",
        "| module:nn.Linear | fails run: the process died |",
    ):
        assert f"\n{row}\n" in text, row
    assert "xla | fused | optimizers" not in text
    assert "checks that run natively on XLA" not in text


def test_what_numpy_shares_with_xla(tmp_path: Path) -> None:
    """Counted by checks: of GOOD's two and BAD's one, the second run has GOOD's alone."""
    one = {record.key: record for record in (GOOD, HOSTED, BAD)}
    other = {record.key: record for record in (GOOD, HOSTED)}
    assert share(one, other) == (3, 2)
    for name, records in (("xla-strict", one), ("numpy-strict", other)):
        lines = "".join(record.to_line() + "\n" for record in records.values())
        (tmp_path / f"{name}.jsonl").write_text(lines)
    write(tmp_path, KEYS, tmp_path / "coverage.md")
    text = (tmp_path / "coverage.md").read_text()
    assert "- strict: of 3 checks that run natively on XLA, 2 (66.7%) do so on NumPy.\n" in text


# --- workers -----------------------------------------------------------------


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """Workers that start no device; returns what they were asked, ``key process arguments``."""
    monkeypatch.setattr(runner, "PROGRAM", ("-m", "tests.commands.worker"))
    monkeypatch.setattr(runner, "START_SECONDS", 240.0)
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    yield lambda: (tmp_path / "asked").read_text().splitlines()


def check(keys: list[str], folder: Path, jobs: int = 1, seconds: float = 60) -> dict[str, Record]:
    found: list[Record] = []
    runner.run(keys, ("fused", "numpy"), folder, jobs, seconds, found.append)
    assert len({record.key for record in found}) == len(found)
    return {record.key: record for record in found}


def test_a_worker_that_dies_costs_its_entry_alone(
    tmp_path: Path, asked: Callable[[], list[str]]
) -> None:
    found = check(["op:a", "op:dies", "op:b"], tmp_path)
    assert found["op:dies"].checks["run"].reason == (
        'the process died (exit code 9; File "kernel.py", line 7 in launch)'
    )
    assert found["op:a"].native and found["op:b"].native
    processes = [line.split()[1] for line in asked()]
    assert processes[0] == processes[1] != processes[2]
    assert all(line.endswith("fused numpy") for line in asked())


def test_a_worker_that_hangs_costs_its_entry_alone(
    tmp_path: Path, asked: Callable[[], list[str]]
) -> None:
    found = check(["op:hangs", "op:b"], tmp_path, seconds=0.2)
    assert found["op:hangs"].checks["run"].reason == "no result within 0 s"
    assert not found["op:hangs"].native


def test_several_workers_check_every_entry_once(
    tmp_path: Path, asked: Callable[[], list[str]]
) -> None:
    keys = [f"op:{number}" for number in range(12)]
    assert set(check(keys, tmp_path, jobs=2)) == set(keys)
    assert sorted(line.split()[0] for line in asked()) == sorted(keys)


def test_a_worker_is_replaced_after_some_entries(
    tmp_path: Path, asked: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ENTRIES_A_WORKER", 2)
    check(["op:a", "op:b", "op:c"], tmp_path)
    assert len({line.split()[1] for line in asked()}) == 2


def test_a_worker_that_does_not_start_is_an_error(
    tmp_path: Path, asked: Callable[[], list[str]]
) -> None:
    with pytest.raises(RuntimeError, match="a worker did not start; its output is in .*worker-0"):
        runner.run(["op:a"], ("never",), tmp_path, 1, 60, lambda record: None)
    assert "no device here" in (tmp_path / "worker-0.log").read_text()


# --- the command -------------------------------------------------------------


@pytest.fixture
def command_of(
    tmp_path: Path, asked: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """The command over entries given here, on workers that start no device."""

    def run(keys: list[str], *arguments: str) -> int:
        monkeypatch.setattr(command, "_keys", lambda: keys)
        places = ["--folder", str(tmp_path), "--document", str(tmp_path / "coverage.md")]
        return command.main(["--jobs", "1", *places, *arguments])

    return run


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path,
    command_of: Callable[..., int],
    asked: Callable[[], list[str]],
    table: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    table()
    (tmp_path / "xla-fused.jsonl").write_text(GOOD.to_line() + "\n" + '{"database": "op", "ent')
    keys = ["op:add", "op:host", "op:new"]
    assert command_of(keys) == 0
    assert [line.split()[0] for line in asked()] == ["op:host", "op:new"]
    assert "xla, fused: 2 entries in " in capsys.readouterr().out
    assert set(load(tmp_path / "xla-fused.jsonl")) == set(keys)
    assert command_of(keys) == 0
    assert len(asked()) == 2
    assert command_of(keys, "--again") == 0  # what used the host, once more
    assert [line.split()[0] for line in asked()[2:]] == ["op:host"]
    assert command_of(keys, "--fresh") == 0
    assert len(asked()) == 6


def test_one_entry_always_runs_and_writes_no_report(
    tmp_path: Path, command_of: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["op:add", "op:fails", "module:nn.Linear"]
    for _ in range(2):
        assert command_of(keys, "--op", "a*", "--verbose") == 0
        assert "0.5 s  op:add  native" in capsys.readouterr().out
    assert not (tmp_path / "coverage.md").exists()
    assert command_of(keys, "--op", "nothing") == 2
    assert capsys.readouterr().err == "no entry matches nothing\n"


def test_a_failure_fails_the_run(
    tmp_path: Path,
    command_of: Callable[..., int],
    table: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    table()
    assert command_of(["op:fails"]) == 1
    printed = capsys.readouterr().out
    assert "xla fused op:fails | forward float32: Mismatched elements: 1 / 2\n" in printed
    assert printed.endswith("1 checks are not as expected\n")
    table(Expected("op:fails", "forward float32", "known"))
    assert command_of(["op:fails"]) == 0
    assert "- known: `op:fails` forward float32" in (tmp_path / "coverage.md").read_text()


def test_excluded_entries_do_not_run(
    command_of: Callable[..., int], asked: Callable[[], list[str]]
) -> None:
    assert command_of(["op:jiterator_unary", "op:a"]) == 0
    assert [line.split()[0] for line in asked()] == ["op:a"]


def test_the_quick_entries_are_apart_from_the_full_run(
    tmp_path: Path, command_of: Callable[..., int], asked: Callable[[], list[str]]
) -> None:
    for _ in range(2):  # never resumed
        assert command_of([], "--quick", "--op", "op:add", "--op", "nn.Linear") == 0
    assert [line.split()[0] for line in asked()] == ["op:add", "module:nn.Linear"] * 2
    assert all(line.endswith("fused xla quick") for line in asked())
    assert set(load(tmp_path / "quick-xla-fused.jsonl")) == {"op:add", "module:nn.Linear"}
    assert not (tmp_path / "xla-fused.jsonl").exists()
    assert not (tmp_path / "coverage.md").exists()


def test_unknown_backends_list_the_valid_ones(
    command_of: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command_of(["op:a"], "--backend", "cuda")
    printed = capsys.readouterr().err
    assert "unknown backend 'cuda': the valid ones are 'xla', 'numpy'" in printed


def test_the_document_is_where_the_readme_says() -> None:
    assert Path("docs/op-coverage.md") == DOCUMENT
