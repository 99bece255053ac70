"""An install that changes nothing: programs that never use the device run as without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.helpers import run, start
from tests.marks import slow_but

QUIET = "import sys, warnings; warnings.simplefilter('ignore'); import torch\n"
LOADED = (
    "\nprint(sorted({'jax', 'fuse.device._core'} & set(sys.modules)))"
    "\nif hasattr(torch, 'tpu'): assert not torch.tpu.is_initialized()"
)
GROUP = (
    "import tempfile, torch.distributed as dist\n"
    "folder = tempfile.mkdtemp()\n"
    "dist.init_process_group({}store=dist.FileStore(folder + '/s', 1), rank=0, world_size=1)\n"
    "dist.barrier()\n"
    "x = torch.ones(2); dist.all_reduce(x)\n"
    "found = [None]; dist.all_gather_object(found, 3)\n"
    "print(x.tolist(), found, dist.get_backend_config())\n"
    "dist.destroy_process_group()\n"
)
LOADER = "torch.utils.data.DataLoader(torch.arange(4.), pin_memory=True{})"
PROGRAMS = {
    "pinned loader": f"print(list({LOADER.format('')}))",
    "pinned loader, two workers": f"print(list({LOADER.format(', num_workers=2')}))",
    "barrier, gloo": GROUP.format("'gloo', "),
    "barrier, the CPU's own backend": GROUP.format(""),
    "random state": (
        "torch.manual_seed(3)\n"
        "with torch.random.fork_rng(): print(torch.rand(2))\n"
        "print(torch.rand(2))"
    ),
    "checkpoints, an optimizer": (
        "from torch.utils.checkpoint import checkpoint\n"
        "p = torch.nn.Parameter(torch.ones(2)); o = torch.optim.Adam([p])\n"
        "for reentrant in (True, False):\n"
        "    checkpoint(lambda x: x.sin() * 2, p, use_reentrant=reentrant).sum().backward()\n"
        "o.step(); print(p.data, p.grad)"
    ),
    "save and load": (
        "import io\n"
        "file = io.BytesIO(); torch.save({'a': torch.ones(2)}, file); file.seek(0)\n"
        "print(torch.load(file))"
    ),
    "a timer, a compiler": (
        "from torch.utils.benchmark import Timer\n"
        "Timer('x + 1', globals={'x': torch.ones(2)}).timeit(3)\n"
        "print(torch.compile(lambda x: x.sin() + 1, backend='eager')(torch.ones(2)))"
    ),
    "forks": (
        "import os\n"
        "def fork():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        x = torch.ones(50, 50, requires_grad=True); (x @ x).sum().backward()\n"
        "        sys.exit(int(x.grad[0, 0].item()) - 100 + 7)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n"
        "torch.set_num_threads(1)\n"
        "fork(); (torch.ones(2, requires_grad=True) * 2).sum().backward(); fork()"
    ),
    "threads": (
        "import threading\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "jobs = [threading.Thread(target=lambda: (x * 2).sum().backward()) for _ in range(3)]\n"
        "for job in jobs: job.start(); job.join()\n"
        "print(x.grad, torch.Generator().device, torch.cuda.is_available())"
    ),
}


QUICK = {"pinned loader, two workers", "forks"}


@pytest.mark.parametrize(
    "name",
    slow_but(QUICK, PROGRAMS),
)
def test_a_program_for_the_cpu_runs_as_without_the_package(name: str):
    code = QUIET + PROGRAMS[name] + LOADED
    installed = run(code, fresh=True)
    assert installed.endswith("[]\n")
    assert installed == run(code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


ASKED = """
accelerator = torch.accelerator.current_accelerator(check_available=True)
print(accelerator, torch._C._get_accelerator(), torch.get_device_module() is torch.tpu)
print(torch.accelerator.device_count(), torch.accelerator.current_device_index())
torch.accelerator.set_device_index(0)
with torch.accelerator.device_index(0): torch.accelerator.synchronize()
torch.accelerator.empty_cache()
print(torch.accelerator.memory_allocated(), torch.accelerator.current_stream().device.type)
pinned = torch.arange(3.).pin_memory()
print(pinned, pinned.device, torch.tpu.current_device())
torch.manual_seed(5)
with torch.random.fork_rng(): torch.manual_seed(6)
assert not torch.tpu.is_initialized() and "jax" not in sys.modules
state = torch.tpu.get_rng_state()
seeds = [torch.tpu.initial_seed()]
assert torch.tpu.is_initialized() and torch.equal(state, torch.tpu.get_rng_state())
assert torch.Tensor.pin_memory is torch._C.TensorBase.pin_memory
print(seeds, (pinned.to("tpu") + 1).tolist())
"""


@pytest.mark.slow
def test_the_accelerator_is_known_before_it_starts():
    assert run(QUIET + ASKED, fresh=True).splitlines() == [
        "tpu tpu True",
        "1 0",
        "0 tpu",
        "tensor([0., 1., 2.]) cpu 0",
        "[5] [1.0, 2.0, 3.0]",
    ]


SEEDED = """
before = torch.tpu.get_rng_state()
torch.tpu.init()
assert torch.equal(before, torch.tpu.get_rng_state()), "the seed of an unseeded program"
print(torch.tpu.device_count())
"""


@pytest.mark.slow
def test_what_is_asked_of_the_device_itself_starts_it():
    two = "--xla_force_host_platform_device_count=2"
    assert run(QUIET + SEEDED, fresh=True, XLA_FLAGS=two) == "2\n"
    assert run(QUIET + "print(torch.tpu.device_count())", fresh=True, XLA_FLAGS=two) == "2\n"


IN_USE = """
(torch.ones(2, device="tpu") + 1).cpu()
for workers in (0, 2):
    data = torch.arange(8.).view(4, 2)
    loader = torch.utils.data.DataLoader(data, 2, pin_memory=True, num_workers=workers)
    print([(x.is_pinned(), (x.to("tpu", non_blocking=True) + 1).tolist()) for x in loader])
"""


def test_pinned_loaders_work_with_the_device_in_use():
    batches = [(True, [[1.0, 2.0], [3.0, 4.0]]), (True, [[5.0, 6.0], [7.0, 8.0]])]
    assert run(QUIET + IN_USE, fresh=True) == f"{batches}\n" * 2


@pytest.mark.slow
def test_torch_tpu_keeps_its_name_unless_ours_is_asked_for(tmp_path: Path):
    (tmp_path / "torch_tpu").mkdir()
    (tmp_path / "torch_tpu" / "__init__.py").touch()
    theirs = {"PYTHONPATH": str(tmp_path)}
    used = (
        "print(hasattr(torch, 'tpu'))\n"
        "import fuse\n"
        "try: fuse.set_mode('strict'); fuse.explain(lambda: None)\n"
        "except RuntimeError as error: print(error)"
    )
    assert run(QUIET + used, fresh=True, **theirs).splitlines() == [
        "False",
        "the device tpu is torch_tpu's in this process.",
        "  hint: set FUSE_AUTOLOAD=1 before the program starts, or uninstall torch_tpu",
    ]
    code = QUIET + "print((torch.ones(2, device='tpu') + 1).tolist())"
    assert run(code, fresh=True, FUSE_AUTOLOAD="1", **theirs) == "[2.0, 2.0]\n"
    process = start("from fuse.commands import cli; cli.main(['doctor'])", fresh=True, **theirs)
    assert (
        "BAD  autoload       the device tpu is torch_tpu's" in process.communicate(timeout=240)[0]
    )
