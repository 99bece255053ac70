"""The ``fuse`` command: a table of subcommands, each in a module of its own.

A module is imported only when its command runs, for some need optional packages. Its
``main(arguments)`` takes what follows the command's name and returns the exit code.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from fuse import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "aot": ("fuse.aot.command", "compile a program for a TPU or GPU on this machine, and report"),
    "build": ("fuse.commands.build", "build the native libraries now, not at their first use"),
    "cache": ("fuse.commands.cache", "list, verify, prune, export and import compiled executables"),
    "coverage": (
        "fuse.commands.coverage",
        "compare with PyTorch's CPU, operator by operator",
    ),
    "demo": ("fuse.commands.demo", "train two programs on the CPU and in every mode, and compare"),
    "doctor": (
        "fuse.commands.doctor",
        "check versions, compiler, devices, settings and cache",
    ),
}
OPTIONAL = {"matplotlib": "demo", "sklearn": "demo", "tqdm": "demo", "expecttest": "test"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; ``arguments`` defaults to the process's own."""
    options = _parser().parse_args(arguments)
    module = COMMANDS[options.command][0]
    try:
        command = importlib.import_module(module)
    except ModuleNotFoundError as error:
        extra = OPTIONAL.get(error.name or "")
        if extra is None:
            raise
        print(
            f"fuse {options.command} needs {error.name}, which is not installed.\n"
            f"  hint: pip install 'torch-fuse[{extra}]'",
            file=sys.stderr,
        )
        return 1
    try:
        return int(command.main(options.arguments))
    except KeyboardInterrupt:
        return 130  # as a shell reports a command ended by SIGINT


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:10}{what}" for name, (_, what) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="fuse",
        description="The tpu device of PyTorch.",
        epilog=f"commands:\n{lines}\n\n'fuse COMMAND --help' says more of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fuse {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
