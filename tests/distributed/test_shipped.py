"""PyTorch's own tests of ``torch.distributed``: each passes, or has its reason written down."""

from __future__ import annotations

import pytest

from tests.distributed.shipped import runs, source
from tests.distributed.shipped.reasons import REASONS


def judged(outcomes: list[runs.Outcome]) -> None:
    """Every test that has no reason not to passes, and touches the device if it has tensors."""
    failed = [
        f"{one.test}: {one.result}\n{one.why}"
        for one in outcomes
        if one.result not in ("passed", "skipped") and one.test not in REASONS
    ]
    assert not failed, "\n".join(failed)
    unexpected = [one.test for one in outcomes if one.result == "passed" and one.test in REASONS]
    assert not unexpected, f"these pass, and have reasons not to: {unexpected}"
    alone = [
        one.test
        for one in outcomes
        if "test_all_reduce" in one.test
        and one.result == "passed"
        # What is refused is refused at the call.
        and "unsupported" not in one.test
    ]
    moved = {one.test for one in outcomes if one.collectives > 0}
    assert moved.issuperset(alone), set(alone) - moved


@pytest.mark.slow
def test_a_collective_of_theirs_runs_on_the_device() -> None:
    outcomes = list(runs.run(["test_all_reduce_sum", "test_all_gather", "test_broadcast"], 2))
    assert [one.result for one in outcomes] == ["passed"] * 3, outcomes
    assert all(one.operations > 0 and one.collectives > 0 for one in outcomes), outcomes


def test_reasons_are_about_tests_that_there_are() -> None:
    text = source.rewritten()
    assert all(f"def {name}(" in text for name in REASONS)


@pytest.mark.shipped
def test_all_of_them_on_two_ranks() -> None:
    judged(list(runs.run(runs.names(), 2)))


@pytest.mark.shipped
def test_those_for_more_ranks_on_four() -> None:
    marks = ("group", "averager", "gather_object", "no_rank_zero", "monitored_barrier_")
    chosen = [name for name in runs.names() if any(mark in name for mark in marks)]
    judged(list(runs.run(chosen, 4)))
