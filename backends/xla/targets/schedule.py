"""A program as the compiler schedules it, without the machine code: seconds in place of minutes.

XLA writes the scheduled program, and where its arrays lie, into files when it is asked to; most of
its time goes by afterwards. Of a step of two layers of Llama 3.1 8B on ``v6e:2x4`` the schedule
takes 4 s of a processor, the whole 230 s. What comes later is missing: estimated cycles.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fuse.backends.xla.targets import hlo

_LOOK: Final = 0.2  # seconds between two looks at what is there
_PROGRAM: Final = "*.after_optimizations_after_buffer_assignment.txt"
_ARRAYS: Final = "*.after_optimizations-buffer-assignment.txt"
_TEMPORARY: Final = re.compile(
    r"^allocation \d+: size (\d+), (?:color 0, )?preallocated-temp", re.MULTILINE
)
_ALIASED: Final = re.compile(
    r"^allocation \d+: size (\d+), parameter [^\n]*maybe-live-out", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduled program.

    Attributes:
        program: its text, read.
        temporary_bytes: of the device's memory, for what lives only within a run.
        alias_bytes: of arguments whose memory a result takes.
    """

    program: hlo.Program
    temporary_bytes: int
    alias_bytes: int


def scheduled(compile_with: Callable[[dict[str, Any]], object]) -> Schedule:
    """What ``compile_with`` schedules, which is given options of the compiler.

    It goes on in a thread of its own, making code that nobody wants: the process that called this
    is to be ended. Raises what ``compile_with`` does before there is a schedule.
    """
    with tempfile.TemporaryDirectory(prefix="fuse-schedule-", ignore_cleanup_errors=True) as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        ended: list[BaseException | None] = []
        thread = threading.Thread(
            target=lambda: ended.append(_raised_by(compile_with, options)), daemon=True
        )
        thread.start()
        while True:
            over = bool(ended)
            found = read(Path(folder))
            if found is not None:
                return found
            if over:
                raise ended[0] or RuntimeError("the compiler has written no schedule")
            time.sleep(_LOOK)


def _raised_by(
    compile_with: Callable[[dict[str, Any]], object], options: dict[str, Any]
) -> BaseException | None:
    try:
        compile_with(options)
    except BaseException as error:  # noqa: BLE001  (raised again by who waits)
        return error
    return None


def read(folder: Path) -> Schedule | None:
    """The schedule in a folder that XLA writes to; ``None`` while it is not all there."""
    programs, assignments = sorted(folder.glob(_PROGRAM)), sorted(folder.glob(_ARRAYS))
    if not programs or not assignments:
        return None
    text = programs[-1].read_text(encoding="utf-8")
    if not text.rstrip().endswith("}"):
        return None
    try:
        program = hlo.parse(text)
    except ValueError:  # the entry, which comes last, has not been written to its end
        return None
    arrays = assignments[-1].read_text(encoding="utf-8")  # written before the program
    return Schedule(program, _sum(_TEMPORARY, arrays), _sum(_ALIASED, arrays))


def _sum(pattern: re.Pattern[str], text: str) -> int:
    return sum(map(int, pattern.findall(text)))
