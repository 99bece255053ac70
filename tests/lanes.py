"""Lanes: under which settings the tests of what users see are run, and what a lane leaves out.

``default`` has no setting at all, ``compiled`` is ``FUSE_TIER=compiled``, and ``accelerator`` a
platform that is not the host (``tests.accelerator``). Every test of ``FOLDERS`` runs in any of
them, unless ``only_in`` says which it is about; the first it names is its home, else ``default``.
All other tests are at home in ``compiled``: what is compiled is what they ask about.
"""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import pytest
import torch

from fuse.device import lazy
from fuse.engine.planning import in_background

LANES: dict[str, dict[str, str]] = {
    "default": {},
    "compiled": {"FUSE_TIER": "compiled"},
    "accelerator": {"FUSE_BACKEND": "tests.accelerator:create"},
}
COMPILER_SECONDS = 60.0
SETTINGS = ("FUSE_TIER", "FUSE_BACKEND")
CHOICES = ("home", "other", *LANES)
FOLDERS = ("device", "programs", "compile")
PAGES = ("kernels/test_pages.py",)
"""Beside them: examples of the documents."""
OWN = ("clients", "vllm")
"""Folders whose tests set their settings themselves."""
HERE = Path(__file__).parent


def only_in(*lanes: str, reason: str) -> pytest.MarkDecorator:
    """A mark: the test, or with ``pytestmark`` the file, is skipped in all lanes but these."""
    assert lanes and set(lanes) <= set(LANES) and reason, (lanes, reason)
    return pytest.mark.lane(*lanes, reason=reason)


def not_on_accelerators(reason: str) -> pytest.MarkDecorator:
    """A mark: what is asked is of the host's memory or threads."""
    return only_in("default", "compiled", reason=reason)


def has_lanes(item: pytest.Item) -> bool:
    """Whether the test runs in all lanes, and not at home alone."""
    if not item.path.is_relative_to(HERE):
        return False
    place = item.path.relative_to(HERE)
    return place.parts[0] in FOLDERS or place.as_posix() in PAGES


def has_settings(item: pytest.Item) -> bool:
    """Whether the test is to run under those of a lane."""
    return item.path.is_relative_to(HERE) and item.path.relative_to(HERE).parts[0] not in OWN


def home(item: pytest.Item) -> str:
    """The lane that a test is about."""
    mark = item.get_closest_marker("lane")
    if mark is not None:
        return str(mark.args[0])
    return "default" if has_lanes(item) else "compiled"


def lane_of(item: pytest.Item, chosen: str) -> str:
    """The lane that a test runs in where ``--lane`` is ``chosen``."""
    if chosen in LANES:
        return chosen
    at_home = home(item)
    if (
        at_home == "accelerator"
    ):  # its platform is chosen before the device starts: not beside others
        return "compiled"
    if chosen == "home" or not has_lanes(item):
        return at_home
    return "compiled" if at_home == "default" else "default"


def skipped(item: pytest.Item, lane: str) -> str | None:
    """Why the test does not run in that lane, or ``None``."""
    mark = item.get_closest_marker("lane")
    if mark is None or lane in mark.args:
        return None
    return f"only in {' and '.join(mark.args)}: {mark.kwargs['reason']}"


def is_sampled(item: pytest.Item, one_in: int) -> bool:
    """Whether the test is of the sample: the same tests in every run, and all that are about an
    accelerator alone, which are run with it."""
    if has_lanes(item) and home(item) == "accelerator":
        return True
    return has_lanes(item) and by_name(item) % one_in == 0


def by_name(item: pytest.Item) -> int:
    """A number of the test, the same in every run: what shares of the tests are made by."""
    return zlib.crc32(item.nodeid.encode())


def enter(lane: str) -> None:
    """Run under the lane's settings from now on, and the processes that are started from here.

    From a platform to another one there is no way once the device has started.
    """
    wanted = LANES[lane]
    if {name: os.environ[name] for name in SETTINGS if name in os.environ} == wanted:
        return
    for name in SETTINGS:
        os.environ.pop(name, None)
    os.environ.update(wanted)
    if lazy.is_initialised():
        torch.tpu.synchronize()
        lazy.core().forget()
        compiler = lazy.engine().planning.compiler
        end = time.monotonic() + COMPILER_SECONDS
        while not compiler.is_idle() and time.monotonic() < end:  # else the next test counts it
            time.sleep(0.01)
        compiler.background = in_background()
        lazy.bound_uncompiled(lazy.core(), lazy.engine())
