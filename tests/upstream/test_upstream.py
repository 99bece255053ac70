"""The runner of others' tests, on test files of ours."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.upstream import campaign, judge
from tests.upstream.pytorch import reasons
from tests.upstream.pytorch.suite import SUITE
from tests.upstream.record import DIED, FAILED, LARGE, PASSED, SKIPPED, Log, Outcome, passed
from tests.upstream.report import write
from tests.upstream.sample import sample
from tests.upstream.suite import LANES as ALL_LANES, NAMES, suite

FILE = """
import os

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase


class TestDevice(TestCase):
    def test_right(self, device):
        self.assertEqual((torch.ones(3, device=device) + 1).sum(), 6.0)

    def test_wrong_there(self, device):
        self.assertTrue(torch.device(device).type == "cpu")

    def test_dense_only(self, device):
        torch.quantize_per_tensor(torch.eye(3, device=device), 1.0, 0, torch.qint8)

    def test_wrong_everywhere(self, device):
        self.assertEqual(1, 2)

    def test_that_ends_the_process(self, device):
        if torch.device(device).type != "cpu":
            os._exit(3)

    def test_zero_comes_after_it(self, device):
        self.assertEqual(torch.zeros(2, device=device).sum(), 0.0)


instantiate_device_type_tests(TestDevice, globals(), except_for="meta")


class TestDefault(TestCase):
    def test_default(self):
        self.assertEqual(torch.ones(2).device.type, torch.get_default_device().type)
"""

LANES = SUITE.lanes("test_ours")


@pytest.mark.slow
def test_a_file_is_joined_by_name_and_a_process_that_ends_costs_one_test(
    tmp_path: Path,
):
    (tmp_path / "test_ours.py").write_text(FILE)
    ours = dataclasses.replace(SUITE, results=tmp_path / "results")
    for lane in LANES:
        campaign.run_file(ours, tmp_path, "test_ours", lane, 0, 0)
    logs = {lane: campaign.log_of(ours, "test_ours", lane) for lane in LANES}
    found = campaign.judged(ours, "test_ours")
    assert (found.tests, found.counted) == (7, 6)
    assert found.passed == {"default": 3, "compiled": 3}
    assert found.listed == {"TestDevice.test_dense_only_cpu": reasons.DENSE}
    assert sorted(found.failed) == [
        "TestDevice.test_that_ends_the_process_cpu",
        "TestDevice.test_wrong_there_cpu",
    ]
    ended = found.failed["TestDevice.test_that_ends_the_process_cpu"]
    assert {lane: one.result for lane, one in ended.items()} == {"default": DIED, "compiled": DIED}
    assert "AssertionError: False is not true" in "\n".join(found.wrong())
    before = logs["default"].path.read_text()
    campaign.run_file(ours, tmp_path, "test_ours", "default", 0, 0)
    assert logs["default"].path.read_text() == before, "what has run is not run again"


def test_a_larger_sample_has_the_smaller_one_whatever_else_is_there():
    names = [f"test_{number}" for number in range(100)]
    assert set(sample(names, 10, 3)) < set(sample([*names, "another"], 30, 3)) | {"another"}
    assert sample(names, 10, 3) != sample(names, 10, 4)
    assert sample(names, 0, 3) == sorted(names)


def test_what_has_begun_and_not_ended_is_known(tmp_path: Path):
    log = Log(tmp_path / "log")
    assert log.unfinished() is None and not log.is_finished()
    log.began("a")
    log.ended("a", PASSED, "")
    log.began("b")
    assert log.unfinished() == "b" and log.begun() == {"a", "b"}
    log.ended("b", DIED, "why")
    log.finished()
    assert log.unfinished() is None and log.is_finished()
    assert passed(log.path) == {"a"}


def judged(tmp_path: Path, why: str, name: str = "Class.test_x_cpu") -> judge.Judged:
    logs = {lane: Log(tmp_path / lane) for lane in LANES}
    logs["cpu"].ended(name, PASSED, "")
    logs["default"].ended(name, FAILED if why else PASSED, why)
    logs["compiled"].ended(name, PASSED, "")
    return judge.judge(SUITE, "test_file", logs)


def test_a_failure_without_a_reason_is_wrong(tmp_path: Path):
    found = judged(tmp_path, "AssertionError: of no kind")
    assert found.failed == {
        "Class.test_x_cpu": {"default": Outcome(FAILED, "AssertionError: of no kind")}
    }
    assert found.wrong() == [
        "test_file:Class.test_x_cpu: default: failed: AssertionError: of no kind"
    ]


def test_a_failure_that_says_its_reason_is_listed(tmp_path: Path):
    found = judged(tmp_path, "RuntimeError: the tpu device has no quantized tensors;")
    assert found.listed == {"Class.test_x_cpu": reasons.DENSE} and found.wrong() == []


def test_a_pass_in_spite_of_a_reason_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(reasons.TESTS, "why", ("test_file:Class.*",))
    assert judged(tmp_path, "").wrong() == [
        "test_file:Class.test_x_cpu: passes, and has a reason not to"
    ]


def test_what_the_cpu_skips_is_asked_of_the_device_where_a_suite_says_so(tmp_path: Path):
    logs = {lane: Log(tmp_path / lane) for lane in ("cpu", "default")}
    for name, result in {"a": PASSED, "b": FAILED, "c": SKIPPED}.items():
        logs["cpu"].ended("Class." + name, SKIPPED, "asks for an accelerator")
        logs["default"].ended("Class." + name, result, result)
    found = judge.judge(dataclasses.replace(SUITE, accelerators=True), "test_file", logs)
    assert (found.counted, found.passed, found.skipped) == (2, {"default": 1}, 0)
    assert list(found.failed) == ["Class.b"]
    assert judge.judge(SUITE, "test_file", logs).counted == 0
    assert passed(logs["default"].path, (SKIPPED,)) == {"Class.a", "Class.c"}


def test_a_process_that_keeps_too_much_memory_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(campaign, "MEMORY", 1 << 20)
    log = Log(tmp_path / "log")
    arguments = [SUITE.name, str(tmp_path), "test_ours", "cpu", "0", "0", str(log.path)]
    assert campaign._process(SUITE, "test_ours", arguments, "cpu", log) == LARGE


def test_the_page_has_a_dash_where_a_file_is_not_run_and_tells_apart_what_was_drawn(tmp_path: Path):
    of = dataclasses.replace(SUITE, page=tmp_path / "page.md", files=("a", "b", "c"), apart=("b",))
    files = [
        judge.Judged("a", 5, 4, {"default": 4, "compiled": 2}, {"default": 4, "compiled": 3}),
        judge.Judged("b", 5, 2, {"default": 1}, {"default": 2}),
    ]
    for one in files:
        one.outside = dict.fromkeys(one.ran, 0)
    write(of, files, 0, 0)
    text = of.page.read_text()
    assert "83.33% pass in the default lane" in text
    assert "66.67% pass in the compiled lane, where 3 of them ran, " in text
    assert "| a | 5 | 4 | 4 | 2 of 3 | 0 | 0 |" in text.partition("Drawn by seed")[0]
    assert "| b | 5 | 2 | 1 | - | 0 | 0 |" in text.partition("Drawn by seed")[2]
    assert "Not run this time: c." in text


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_is_whole(name: str):
    of = suite(name)
    assert of.name == name and len(of.files) == len(set(of.files))
    assert set(of.apart) <= set(of.files)
    for file in of.files:
        lanes = of.lanes(file)
        assert lanes[:2] == ("cpu", "default") and set(lanes) <= set(ALL_LANES)
    reasons_for = {
        pattern.partition(":")[0] for one in of.reasons.tests.values() for pattern in one
    }
    assert reasons_for <= {*of.files, "*"}


def test_there_are_many_architectures_and_ten_apart_in_every_lane():
    models = suite("transformers")
    assert len(models.files) > 150 and len(models.apart) == 10
    assert {models.lanes(file) for file in models.apart} == {tuple(ALL_LANES)}
