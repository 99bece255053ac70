"""Streams that have not come by for longest are forgotten, and live executables stay bounded."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest

from fuse.backends.xla.backend import create
from fuse.device import lazy
from tests.device.helpers import run
from tests.lanes import only_in

pytestmark = only_in("compiled", "accelerator", reason="bounds of what is compiled")

PROGRAMS = """
import gc, itertools, json
import torch, fuse
from fuse.device import lazy

torch.tpu.init()
lazy.core().set_most_nodes(MOST_NODES)
steps = (torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.neg)
host = torch.linspace(-1, 1, 16)
x = host.to("tpu")

def distinct(value, chosen):
    for step in chosen:
        value = step(value)
    return value.sum()

def hot(value):
    return (value * 2 + 1).relu().mean()

seen, compiled, known = [], [], []
for number, chosen in enumerate(itertools.product(steps, repeat=3)):
    torch.testing.assert_close(distinct(x, chosen).cpu(), distinct(host, chosen))
    before = fuse.stats()["compiles"]
    torch.testing.assert_close(hot(x).cpu(), hot(host))
    compiled.append(fuse.stats()["compiles"] - before)
    seen.append(lazy.engine().planning._held.executables()[0])
    known.append(fuse.stats()["known_calls"])
stats = fuse.stats()
gc.collect()

alive = sum(type(one).__name__ == "XlaExecutable" for one in gc.get_objects())
print(json.dumps([stats["prunes"], stats["compiles"], sum(compiled), max(seen), max(known), alive]))
"""


@pytest.mark.parametrize("entries", [10, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("most_nodes", [60, pytest.param(100_000, marks=pytest.mark.slow)])
def test_what_is_held_is_bounded(entries: int, most_nodes: int):
    code = PROGRAMS.replace("MOST_NODES", str(most_nodes))
    printed = run(code, FUSE_CACHE="off", FUSE_CACHE_ENTRIES=str(entries))
    prunes, compiles, hot, executables, known, alive = json.loads(printed.splitlines()[-1])
    bounded = entries < 126 or most_nodes < 500
    assert (prunes > 0) == bounded
    # The stream that comes by all the time is kept: it is compiled once, as each of the others is.
    assert hot == 1
    assert compiles == 126
    assert executables <= entries + 1
    assert known <= most_nodes + 8  # checked where a trace ends
    assert alive <= 2 * entries + 2


ONCE = """
import gc, itertools, json, time
import torch, fuse
from fuse.device import lazy

x = torch.linspace(-1, 1, 16).to("tpu")
given_back = []
lazy.core().set_tier(1)  # recorded at once, compiled in the background
lazy.engine().backend.give_back = lambda: given_back.append(None)
for chosen in itertools.product((torch.sin, torch.cos, torch.tanh, torch.neg), repeat=3):
    value = x
    for step in chosen:
        value = step(value)
    value.sum().item()
    while fuse.stats()["background"]["pending"]:
        time.sleep(0.001)
del value
gc.collect()
names = [type(one).__name__ for one in gc.get_objects()]
made = fuse.stats()["background"]["compiled"]
held = lazy.engine().planning._held.executables()
alive = [names.count("XlaExecutable"), names.count("_Job")]
print(json.dumps([made, fuse.stats()["prunes"], len(given_back), *alive, *held]))
"""


@only_in("compiled", reason="elsewhere executables are waited for")
def test_what_is_made_for_streams_that_do_not_come_back_is_bounded():
    """Their plans are forgotten before they run a second time, which would take what was made."""
    entries = 6
    printed = run(
        ONCE,
        FUSE_CACHE="off",
        FUSE_CACHE_ENTRIES=str(entries),
        FUSE_TIER="auto",
    )
    made, prunes, given_back, alive, futures, held, size = json.loads(printed.splitlines()[-1])
    assert made == 64 and prunes > 3
    assert prunes - 1 <= given_back <= prunes  # once its plans are gone
    assert alive <= 2 * entries + 2 and futures <= entries + 1
    assert held <= entries + 1
    assert size >= 1000  # what is made and has not run yet is counted, too


MAPS = """
import itertools, json
import torch, fuse
from fuse.device import lazy
from fuse.engine.resource_limits import memory_maps

torch.tpu.init()
steps = (torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.neg)
host = torch.linspace(-1, 1, 16)
x = host.to("tpu")
x.sum().item()
before = memory_maps()
lazy.engine().planning._held.most_maps = before + 200
seen = []
for chosen in itertools.product(steps, repeat=3):
    value, wanted = x, host
    for step in chosen:
        value, wanted = step(value).roll(1), step(wanted).roll(1)
    torch.testing.assert_close(value.sum().cpu(), wanted.sum())
    seen.append(memory_maps() - before)
print(json.dumps([fuse.stats()["prunes"], max(seen)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux bounds memory maps")
@pytest.mark.skipif(create().platform.name != "cpu", reason="other compilers make none")
def test_memory_maps_are_bounded():
    prunes, most = json.loads(run(MAPS, FUSE_CACHE="off").splitlines()[-1])
    assert prunes > 1
    assert most < 600


CHANGING = """
import itertools, json, warnings
import torch, fuse
from fuse.device import lazy

warnings.simplefilter("ignore")
torch.tpu.init()
lazy.core().set_most_nodes(80)
steps = (torch.sin, torch.cos, torch.tanh, torch.sigmoid)
x = torch.linspace(-1, 1, 16).to("tpu")
compiled = 0
for length, chosen in enumerate(itertools.product(steps, repeat=3), 1):
    host = torch.arange(length) / length
    changing = host.to("tpu")
    before = fuse.stats()["compiles"]
    torch.testing.assert_close((changing * 3).exp().cpu(), (host * 3).exp())
    compiled += fuse.stats()["compiles"] - before
    value = x
    for step in chosen:
        value = step(value)
    value.sum().item()
stats = fuse.stats()
print(json.dumps([stats["prunes"], compiled]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "tier",
    ["compiled", pytest.param("auto", marks=only_in("compiled", reason="chooses on the CPU"))],
)
def test_sizes_that_change_while_the_trie_is_pruned(tier: str):
    printed = run(CHANGING, FUSE_CACHE="off", FUSE_TIER=tier)
    prunes, compiled = json.loads(printed.splitlines()[-1])
    if tier == "auto":
        assert compiled == 0
    else:
        # Where the host cannot run them, traces are at the sizes of buckets from the eighth on.
        assert prunes > 1 and compiled == (64 if lazy.engine().backend.shares_host_memory() else 11)


GROWTH = """
import ctypes, gc, json
import torch, fuse
from fuse.device import lazy

class Info(ctypes.Structure):  # struct mallinfo2 of <malloc.h>
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefg"] + [("used", ctypes.c_size_t)] + [
        (name, ctypes.c_size_t) for name in "xy"]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to("tpu").eval()

def used():
    gc.collect()
    return library.mallinfo2().used

def serve(length):
    with torch.no_grad():
        return layer(torch.ones(2, length, 32, device="tpu")).sum().item()

for length in range(3, 8):
    serve(length)
before, held = used(), []
for length in range(8, 8 + NUMBER):
    serve(length)
    held.append(lazy.engine().planning._held.executables()[1])
tier = fuse.stats()["cache"]["memory"]["bytes"]
print(json.dumps([max(held), tier, used() - before, fuse.stats()["compiles"]]))
"""


@only_in("compiled", reason="known of the CPU platform alone")
@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library does not tell what is used"
)
@pytest.mark.parametrize("number", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_the_memory_of_executables_is_bounded(number: int, tmp_path: Path):
    bound = 6_000_000  # two or three, of 2.4 MB each
    printed = run(
        GROWTH.replace("NUMBER", str(number)),
        FUSE_CACHE_BYTES=str(bound),
        FUSE_CACHE_DIR=str(tmp_path),
    )
    held, tier, grown, compiles = json.loads(printed.splitlines()[-1])
    assert compiles >= number
    assert held <= bound + 3_000_000  # looked at when one more has been bound to its plan
    assert tier <= bound
    # Descriptions of calls, which are bounded by their number, take the rest.
    assert grown < 1.1 * bound + 250_000 * number
