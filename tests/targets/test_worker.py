"""The process of the compiler: how it ends."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import threading, time
from fuse.backends.xla.tpu.worker import end_with
threading.Thread(target=end_with, args=(0,), daemon=True).start()
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
