"""What can be counted of a step of each program, whichever machine it runs on.

``python -m bench.counts --write`` counts all programs anew and writes ``bench/counts.json``;
without ``--write`` it says what differs from the file, as ``tests/engine/test_counts.py`` does.

Counted in the compiled tier of Fused, with an empty cache, a process a program. Of the first step:
operations, traces, launches (chunks that were run), plans and executables made. Of a steady step,
the last of ``STEPS``: these, arrays and bytes that go into executables and come out, what of it is
donated, cuts by reason, and calls from the native core into Python by what they are. ``tpu
launches`` are the chunks that a TPU's plan of the steady step has; what the TPU's compiler says of
them is not counted here, for it needs libtpu: ``python -m bench.targets``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from bench.programs import PROGRAMS

FILE: Final = Path(__file__).with_suffix(".json")
COMMAND: Final = "python -m bench.counts --write"
STEPS: Final = 6
"""Steps until nothing changes any more, an optimizer's state and starting ahead among it."""
ENTRIES: Final = ("describe", "generalise", "plan", "start", "execute", "put", "get", "waits")
"""What the native core calls in Python, of ``fuse.engine.engine.Engine``."""
SETTINGS: Final = {"FUSE_TIER": "compiled", "FUSE_CACHE": "off", "FUSE_MODE": "fused"}
BUILDERS: Final = {program.name: program.build for program in PROGRAMS}


class Entries:
    """Counts the native core's calls into the engine, and looks at the plans that are run."""

    def __init__(self, engine: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.ran: list[Any] = []
        self.asked: dict[int, tuple[Any, ...]] = {}
        for name in ENTRIES:
            setattr(engine, name, self._counted(name, getattr(engine, name)))

    def reset(self) -> None:
        """Count from zero; the plans stay known."""
        self.calls.clear()
        self.ran.clear()

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            result = method(*arguments)
            if name == "plan":
                self.asked[id(result[0])] = arguments
            if name == "execute":
                self.ran.append(arguments[0])
            return result

        return call


def counted(name: str) -> dict[str, Any]:
    """The counts of one program, in this process, whose device has not been started."""
    # Imported here: the settings are read when the device starts.
    import fuse  # noqa: PLC0415
    from fuse.device import lazy  # noqa: PLC0415

    step = BUILDERS[name]("tpu")
    torch.tpu.synchronize()
    entries = Entries(lazy.engine())
    steps = []
    for _ in range(STEPS):
        before = fuse.stats()
        entries.reset()
        step()
        steps.append(_since(before, fuse.stats()))
        steps[-1]["plans"] = entries.calls["plan"]
    return {
        "first step": steps[0],
        "compiles until steady": sum(one["compiles"] for one in steps),
        "steady step": steps[-1] | _flow(entries),
    }


COUNTED: Final = ("operations", "known_operations", "traces", "chunks", "compiles")
NAMES: Final = {"chunks": "launches", "known_operations": "known operations"}


def _since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    found = {NAMES.get(key, key): after[key] - before[key] for key in COUNTED}
    for name in ("cuts", "host_fallbacks"):
        grown = {key: count - before[name].get(key, 0) for key, count in after[name].items()}
        found[name.replace("_", " ")] = {key: grown[key] for key in sorted(grown) if grown[key]}
    return found


def _flow(entries: Entries) -> dict[str, Any]:
    """What goes through the executables of the last step, and what the core asked Python for."""
    sums: Counter[str] = Counter()
    for runnable in entries.ran:
        layouts = runnable.plan.trace.layouts()
        for chunk in runnable.plan.chunks:
            sizes = [leaf.layout.nbytes for leaf in chunk.inputs]
            sums["arrays in"] += len(sizes)
            sums["bytes in"] += sum(sizes)
            sums["arrays out"] += len(chunk.outputs)
            sums["bytes out"] += sum(layouts[value].nbytes for value in chunk.outputs)
            sums["arrays donated"] += len(chunk.donated)
            sums["bytes donated"] += sum(sizes[position] for position in chunk.donated)
        sums["tpu launches"] += _tpu_launches(entries.asked[id(runnable)])
    return {**sums, "into Python": {name: entries.calls[name] for name in ENTRIES}}


def _tpu_launches(asked: tuple[Any, ...]) -> int:
    from fuse.backends.xla.tpu.platform import TpuPlatform  # noqa: PLC0415
    from fuse.plan.planner import plan  # noqa: PLC0415
    from fuse.trace.node import Trace  # noqa: PLC0415

    recorded, live, donatable, *_ = asked
    borders = TpuPlatform().borders()
    return len(plan(Trace.of(recorded), live, donatable, borders).chunks)


def versions() -> dict[str, str]:
    """What decides which operations PyTorch calls; counts are compared under the same alone."""
    return {"torch": torch.__version__.partition("+")[0]}


def differences(name: str, stored: Any, found: Any) -> list[str]:
    """A line for each number that is another one, with both and the difference."""
    if isinstance(stored, dict) and isinstance(found, dict):
        keys = [*stored, *(key for key in found if key not in stored)]
        return [
            line
            for key in keys
            for line in differences(f"{name}, {key}", stored.get(key, 0), found.get(key, 0))
        ]
    if stored == found:
        return []
    if isinstance(stored, int) and isinstance(found, int):
        return [f"{name}: {found:,} instead of {stored:,} ({found - stored:+,})"]
    return [f"{name}: {found} instead of {stored}"]


def count_all(names: list[str]) -> dict[str, Any]:
    """The counts of these programs, each in a process of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FUSE_")}
    found = {}
    for name in names:
        command = [sys.executable, "-m", "bench.counts", "--one", name]
        done = subprocess.run(
            command, env=kept | SETTINGS, stdout=subprocess.PIPE, text=True, check=True
        )
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"counted {name}", file=sys.stderr, flush=True)
    return found


def main(arguments: list[str]) -> int:
    """Write the file, or compare with it; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="programs; all of them where none is named")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(counted(options.one)))
        return 0
    found = count_all(options.names or list(BUILDERS))
    stored = json.loads(FILE.read_text()) if FILE.exists() else {"programs": {}}
    if options.write:
        programs = stored["programs"] | found
        data = {
            "versions": versions(),
            "programs": {name: programs[name] for name in sorted(programs)},
        }
        FILE.write_text(json.dumps(data, indent=1) + "\n")
        return 0
    lines = [
        line
        for name in found
        for line in differences(name, stored["programs"].get(name, {}), found[name])
    ]
    print("\n".join(lines) or "nothing differs")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
