"""The process of the compiler: how it ends, and how long it is waited for."""

from __future__ import annotations

import os
import subprocess
import sys

from fuse.backends.processes.patience import Patience, processor_seconds

CODE = """
import threading, time
import os
from fuse.backends.processes.serve import end_with
threading.Thread(target=end_with, args=(0, os.getppid()), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_worker_ends_in_the_middle_of_its_work_when_nobody_can_ask_it_any_more() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdin is not None and worker.stdout is not None
    with worker.stdout:
        assert worker.stdout.readline() == b"ready\n"
        worker.stdin.write(b"a request that it has not read")
        worker.stdin.close()
        assert worker.wait(timeout=300) == 1


def test_a_compiler_on_busy_cores_is_waited_for_by_what_it_has_used() -> None:
    patience = Patience(300, used=20, now=0)
    for minute in range(1, 30):  # a sixth of a core
        assert patience.spent(used=20 + 10 * minute, now=60 * minute) == ""
    assert patience.spent(320, now=1801) == "no answer within 300 s of processor time"


def test_a_compiler_that_stands_still_is_not_waited_for_any_longer() -> None:
    patience = Patience(300, used=20, now=0)
    assert patience.spent(used=25, now=200) == ""
    assert patience.spent(used=25.4, now=499) == ""
    assert patience.spent(used=25.4, now=500) == "no answer, and no work, for 300 s"


def test_a_compiler_that_hardly_works_is_not_waited_for_without_end() -> None:
    patience = Patience(300, used=20, now=0)
    hours = range(1, 13)
    said = [patience.spent(used=20 + turn, now=299 * turn) for turn in hours]
    assert said == [""] * len(hours)
    assert patience.spent(used=33, now=3600) == "no answer within 3600 s"


def test_the_processor_time_of_a_process_is_what_it_says_itself() -> None:
    before = processor_seconds(os.getpid())
    while sum(os.times()[:2]) < before + 0.1:
        pass
    assert before < processor_seconds(os.getpid()) <= sum(os.times()[:2]) + 0.001
