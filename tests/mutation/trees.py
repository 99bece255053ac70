"""Copies of the project in which a mutant can be written, each with a worker that tests it.

The installed package is put together from folders beside each other; in a copy they lie within
``fuse`` as links, so that the copy's path alone makes all of it importable, in the processes that
tests start as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutation"
WITHIN = ("backends", "cache", "examples")
QUIET = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "--benchmark-disable")


class Tree:
    """A copy of the project's files, and its worker, which has imported PyTorch and JAX."""

    def __init__(self, number: int) -> None:
        self.root = BUILD / f"tree-{number}"
        self.output = BUILD / f"output-{number}.txt"
        shutil.rmtree(self.root, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        for name in WITHIN:
            (self.root / "fuse" / name).symlink_to(Path("..") / name)
        self.worker = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.worker"],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def test(
        self,
        arguments: Sequence[str],
        seconds: float,
        record: Path | None = None,
        replaced: Mapping[str, str] | None = None,
    ) -> int:
        """The exit code of a pytest with some files replaced; -9 where it took too long."""
        request = {
            "arguments": [*QUIET, *arguments],
            "seconds": seconds,
            "output": str(self.output),
            "record": record and str(record),
        }
        kept = {name: (self.root / name).stat() for name in replaced or {}}
        texts = {name: (self.root / name).read_text() for name in kept}
        for name, text in (replaced or {}).items():
            (self.root / name).write_text(text)
        assert self.worker.stdin is not None and self.worker.stdout is not None
        print(json.dumps(request), file=self.worker.stdin, flush=True)
        answer = self.worker.stdout.readline()
        for name, before in kept.items():  # with its time, by which its bytecode is known
            (self.root / name).write_text(texts[name])
            os.utime(self.root / name, ns=(before.st_atime_ns, before.st_mtime_ns))
        if not answer:
            raise ChildProcessError(f"the worker of {self.root} has ended")
        return int(answer)

    def close(self) -> None:
        """End the worker."""
        assert self.worker.stdin is not None
        self.worker.stdin.close()
        self.worker.wait()
