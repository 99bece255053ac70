"""The ``fuse aot`` command: run a program here, compile it for a TPU or GPU, and report."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fuse import config
from fuse.errors import ConfigError

if TYPE_CHECKING:
    from fuse.aot.report import TargetReport
    from fuse.engine.targeted import Targeted


def main(arguments: Sequence[str]) -> int:
    """Run the program, print the report; 1 where something is refused, else the program's code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.library is not None:
        if options.pack is None or options.program is not None:
            parser.error("--library takes --pack FILE and no program")
        options.target = options.library
    elif options.target is None or options.program is None:
        parser.error("name a target (--target, or FUSE_TARGET) and a program")
    # What the program computes, it computes on this machine's CPU; JAX reads this when it starts.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.pop("FUSE_TARGET", None)
    # Imported here, after the setting: JAX starts with it.
    import torch  # noqa: F401, PLC0415  (before the device, which it loads)

    from fuse.aot.report import last_step, open_target, report_of  # noqa: PLC0415
    from fuse.aot.text import failures as failure_lines  # noqa: PLC0415
    from fuse.device import lazy  # noqa: PLC0415

    if options.fake:
        return run_fake(options)
    try:
        targeted = open_target(options.target)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if options.library is not None:
        return write_library(targeted, options.pack)
    lazy.set_target(targeted)
    try:
        code = run(str(options.program), options.arguments, options.module)
        lazy.core().cut("synchronize")
        lazy.engine().wait()
    finally:
        lazy.set_target(None)
    if not targeted.runs:
        print("fuse aot: the program ran nothing on the device tpu", file=sys.stderr)
        targeted.target.close()
        return code or 1
    report = report_of(
        targeted, last_step(targeted), whole=True, ready=None if options.json else _step
    )
    if options.json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        print("\n".join(["", "of the whole program:", *failure_lines(report.to_dict())]))
    if options.html is not None:
        print(f"wrote {report.save(options.html)}", file=sys.stderr)
    if options.pack is not None:
        print(f"wrote {report.pack(options.pack)}", file=sys.stderr)
    return code or int(bool(report.failures))


def _step(report: TargetReport) -> None:
    """Print the step's report, before what else the program ran is compiled."""
    print(f"the program's last step\n{report}", flush=True)


def run_fake(options: argparse.Namespace) -> int:
    """Run the program by shapes as rank 0 of many, and report its third step."""
    # Imported here, as in ``main``.
    from fuse.aot.fake_program import report  # noqa: PLC0415

    try:
        code, found = report(
            options.target,
            options.ranks,
            lambda: run(str(options.program), options.arguments, options.module),
        )
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if found is None:
        print(
            "fuse aot: no optimizer made three steps, and the third is what is compiled\n"
            "  hint: let the program make more, or give one to fuse.compile_pod",
            file=sys.stderr,
        )
        return code or 1
    print(json.dumps(found.to_dict(), indent=1) if options.json else found)
    if options.html is not None:
        print(f"wrote {found.save(options.html)}", file=sys.stderr)
    return code or int(bool(found.error))


def write_library(targeted: Targeted, pack: Path) -> int:
    """Compile the standard operations one by one, and pack them; 1 where one is refused."""
    # Imported here, as in ``main``.
    from fuse.aot.library import entries  # noqa: PLC0415
    from fuse.aot.report import report_of  # noqa: PLC0415
    from fuse.device import lazy  # noqa: PLC0415
    from fuse.modes import get_mode, set_mode  # noqa: PLC0415

    mode, count = get_mode(), 0
    set_mode("strict")
    lazy.set_target(targeted)
    try:
        for _, call in entries("tpu"):
            call()
            count += 1
        lazy.core().cut("synchronize")
        lazy.engine().wait()
    finally:
        lazy.set_target(None)
        set_mode(mode)
    report = report_of(targeted, targeted.runs, advice=False)
    for failure in report.failures:
        print(f"{failure['operator']}({failure['operands']}): {failure['reason']}")
    print(f"{count} operations, {len(report.chunks)} executables: {report.pack(pack)}")
    return int(bool(report.failures))


def run(program: str, arguments: Sequence[str], module: bool) -> int:
    """Run a script or a module as Python would; its exit code. An exception is printed."""
    before = sys.argv, sys.path[0]
    sys.argv = [program, *arguments]
    sys.path[0] = "" if module else str(Path(program).resolve().parent)
    try:
        if module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:  # noqa: BLE001  (said as Python says it; what had run is reported)
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path[0] = before
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fuse aot",
        description="Run a program on this machine, compile what it does for a TPU or GPU, "
        "and report what its last step costs there. No such device is needed.",
    )
    parser.add_argument(
        "--target",
        default=config.target(),
        help="v4, v5e, v5p, v6e or tpu7x (one chip), or a topology such as v5e:4x4; a100, h100, "
        "h200 or b200, or several, such as h100:8 (default: FUSE_TARGET)",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page")
    parser.add_argument(
        "--pack", type=Path, metavar="FILE", help="write what was compiled, for fuse cache import"
    )
    parser.add_argument(
        "--fake",
        action="store_true",
        help="run by shapes, without data, as rank 0 of --ranks, and compile one step for all "
        "devices of the target",
    )
    parser.add_argument(
        "--ranks", type=int, default=1, metavar="N", help="how many a --fake run finds"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "-m", dest="module", action="store_true", help="the program is a module's name"
    )
    parser.add_argument(
        "--library",
        metavar="TARGET",
        help="no program: write a pack of standard operations for TARGET",
    )
    parser.add_argument("program", nargs="?", help="the program, run as Python would")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    return parser
