"""A worker as the runner sees one: a key a line in, a record a line out. Starts no device.

``op:dies``, ``op:hangs``, ``op:babbles`` do so; ``op:fails`` is recorded as failing. What was
asked is appended to the file that the environment variable ``ASKED`` names.
"""

from __future__ import annotations

import os
import sys
import time

from tests.coverage.record import FAILED, HOST, Outcome, Record

CHECKS = {
    "op:fails": Outcome(FAILED, reason="Mismatched elements: 1 / 2"),
    "op:host": Outcome(HOST, 3, ("aten_a", "aten_b")),
}


def main() -> int:
    if "never" in sys.argv:
        print("no device here", file=sys.stderr)
        return 1
    print("ready", flush=True)
    for line in sys.stdin:
        key = line.strip()
        with open(os.environ["ASKED"], "a") as asked:
            asked.write(f"{key} {os.getpid()} {' '.join(sys.argv[1:])}\n")
        if key == "op:dies":
            print('  File "kernel.py", line 7 in launch', file=sys.stderr, flush=True)
            os._exit(9)
        if key == "op:hangs":
            time.sleep(600)
        database, _, entry = key.partition(":")
        record = Record(database, entry, 0.5, {"forward float32": CHECKS.get(key, Outcome())})
        print(record.to_line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
