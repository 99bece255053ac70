"""The runner of PyTorch's own tests, on test files of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upstream import campaign, judge, reasons
from tests.upstream.files import FILES
from tests.upstream.names import sample
from tests.upstream.record import DIED, FAILED, PASSED, Log, Outcome, passed

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
        torch.eye(3, device=device).to_sparse()

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


@pytest.mark.slow
def test_a_file_is_joined_by_name_and_a_process_that_ends_costs_one_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "test_ours.py").write_text(FILE)
    monkeypatch.setattr(campaign, "RESULTS", tmp_path / "results")
    for lane in campaign.LANES:
        campaign.run_file(tmp_path, "test_ours", lane, 0, 0)
    logs = {lane: campaign.log_of("test_ours", lane) for lane in campaign.LANES}
    found = judge.judge("test_ours", logs)
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
    campaign.run_file(tmp_path, "test_ours", "default", 0, 0)
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
    logs = {lane: Log(tmp_path / lane) for lane in campaign.LANES}
    logs["cpu"].ended(name, PASSED, "")
    logs["default"].ended(name, FAILED if why else PASSED, why)
    logs["compiled"].ended(name, PASSED, "")
    return judge.judge("test_file", logs)


def test_a_failure_without_a_reason_is_wrong(tmp_path: Path):
    found = judged(tmp_path, "AssertionError: of no kind")
    assert found.failed == {
        "Class.test_x_cpu": {"default": Outcome(FAILED, "AssertionError: of no kind")}
    }
    assert found.wrong() == [
        "test_file:Class.test_x_cpu: default: failed: AssertionError: of no kind"
    ]


def test_a_failure_that_says_its_reason_is_listed(tmp_path: Path):
    found = judged(tmp_path, "RuntimeError: the tpu device has dense (strided) tensors only.")
    assert found.listed == {"Class.test_x_cpu": reasons.DENSE} and found.wrong() == []


def test_a_pass_in_spite_of_a_reason_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(reasons.TESTS, "why", ("test_file:Class.*",))
    assert judged(tmp_path, "").wrong() == [
        "test_file:Class.test_x_cpu: passes, and has a reason not to"
    ]


def test_reasons_are_of_files_that_are_run():
    patterns = [pattern for patterns in reasons.TESTS.values() for pattern in patterns]
    assert {pattern.partition(":")[0] for pattern in patterns} <= set(FILES)
