"""One rank that runs tests by name, one after another, and prints a line of JSON for each.

    python -m tests.distributed.shipped.rank NAMES_FILE

It ends after a test that any rank did not pass: what the others have done then nobody knows.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
import unittest
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal import common_utils

import fuse
from tests.distributed.shipped import source

MARK = "@result "
SECONDS = 60
"""The group's time-out."""


def touched() -> dict[str, int]:
    """What the device has done: operations, and collectives of its tensors."""
    stats = fuse.stats()
    done = stats["uncompiled_operations"]
    return {
        "operations": stats["operations"] + done,
        "collectives": stats["cuts"].get("collective", 0),
    }


def run(case: unittest.TestCase, name: str) -> dict[str, Any]:
    """Run one test; what came of it."""
    before = touched()
    outcome: dict[str, Any] = {"test": name, "result": "passed", "why": ""}
    common_utils.set_rng_seed(1234)
    method = getattr(case, name)
    if getattr(method, "__unittest_skip__", False):
        outcome.update(result="skipped", why=str(method.__unittest_skip_why__))
        return outcome
    os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)  # tests before it leave theirs
    dist.set_debug_level_from_env()
    torch.set_default_device(None if name in ON_HOST else "tpu")
    try:
        method()
    except unittest.SkipTest as skip:
        outcome.update(result="skipped", why=str(skip))
    except SystemExit as left:
        outcome.update(result="skipped", why=f"exit {left.code}")
    except BaseException as error:  # noqa: BLE001  (whatever a test raises is its result)
        last = traceback.format_exception(error)
        outcome.update(result="failed", why="".join(last)[-3000:])
    torch.set_default_device(None)
    after = touched()
    return {**outcome, **{key: after[key] - before[key] for key in after}}


ON_HOST = frozenset(
    {
        # Draw indices with a generator of the host.
        "test_DistributedSampler_padding",
    }
)


def main(names_file: str) -> None:
    """Run the tests that the file names."""
    faulthandler.enable()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    timeout = timedelta(seconds=SECONDS)
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timeout=timeout)
    own = store.clone()
    module = source.load()
    torch.tpu.init()
    dist.init_process_group(
        source.BACKEND,
        store=dist.PrefixStore("group/", store),
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    group = dist.group.WORLD

    class Shipped(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore
        pass

    for name in Path(names_file).read_text().split():
        case = Shipped(name)
        case.rank = rank
        case.file_name = f"{os.environ['TEMP_DIR']}/rendezvous-{name}"
        print(f"@start {name}", flush=True)
        outcome = run(case, name)
        print(MARK + json.dumps(outcome), flush=True)
        if outcome["result"] == "failed":
            os._exit(0)  # others that wait for this rank learn that it has gone
        own.set(f"{name}/{rank}", outcome["result"])
        own.wait([f"{name}/{one}" for one in range(size)], timeout)
        if dist.group.WORLD is not group:
            break  # the test has taken the group down
        for left in list(dist.distributed_c10d._world.pg_map):
            if left is not group:
                dist.destroy_process_group(left)
    print("@end", flush=True)
    own.set(f"end/{rank}", "")
    own.wait([f"end/{one}" for one in range(size)], timedelta(seconds=20))
    sys.stdout.flush()
    os._exit(0)  # a failed test leaves threads that wait


if __name__ == "__main__":
    main(sys.argv[1])
