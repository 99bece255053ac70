"""Sparse tensors of the device beside those of PyTorch's CPU: layouts, values, gradients."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

import fuse
from fuse.errors import HostFallbackError
from tests.device.helpers import run
from tests.device.sparse.programs import (
    DEVICE,
    GRADIENTS,
    PROGRAMS,
    Program,
    S,
    agrees,
    coordinates,
    dense,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* support is in beta"),
    pytest.mark.filterwarnings("ignore::fuse.engine.host_calls.HostFallbackWarning"),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str):
    program, operands = PROGRAMS[name]
    agrees(program, *operands)


def _gradients(program: Program, *operands: Tensor) -> Iterable[Tensor]:
    leaves = [one for one in operands if one.is_floating_point()]
    result = program(*(one.requires_grad_() for one in operands))
    return torch.autograd.grad((result * result.detach()).sum(), leaves)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str):
    program, operands = GRADIENTS[name]
    agrees(
        lambda *given: [
            one.coalesce() if one.is_sparse else one for one in _gradients(program, *given)
        ],
        *operands,
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_ones(seed: int):
    random = torch.Generator().manual_seed(seed)
    d, elements = (
        int(torch.randint(1, 4, (), generator=random)),
        int(torch.randint(0, 40, (), generator=random)),
    )
    sizes = tuple(torch.randint(1, 6, (d,), generator=random).tolist())
    tail = tuple(torch.randint(1, 4, (seed % 2,), generator=random).tolist())
    dtype = (torch.float32, torch.int64, torch.float64, torch.complex64)[seed % 4]
    x, y = (coordinates(sizes, elements, tail, dtype, seed=seed + 50 * one) for one in range(2))
    agrees(lambda x, y: (x.coalesce(), x + y, x - 2 * y, x.to_dense() + y, torch.cat([x, y])), x, y)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD": lambda given: torch.optim.SGD(given, 0.1),
    "SGD, momentum": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9),
    "Adagrad": lambda given: torch.optim.Adagrad(given, 0.1),
    "SparseAdam": lambda given: torch.optim.SparseAdam(given, 0.1),
}


@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_embeddings_with_sparse_gradients(name: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    """At every step the CPU's losses; nothing on the host."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")

    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        table = getattr(nn, kind)(20, 4, sparse=True).to(device)
        optimizer, found = OPTIMIZERS[name](list(table.parameters())), []
        for step in range(8):
            words = torch.tensor([[1, 2, 2], [3, (step * 7) % 20, 19]], device=device)
            loss = (table(words) - 1).square().sum()
            optimizer.zero_grad()
            loss.backward()
            assert table.weight.grad.layout == torch.sparse_coo
            optimizer.step()
            found.append(loss.item())
        return found

    torch.testing.assert_close(losses(DEVICE), losses("cpu"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_graph_network_with_a_sparse_adjacency(
    layout: torch.layout, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    edges = (torch.rand(12, 12, generator=torch.Generator().manual_seed(0)) < 0.3).float()

    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        net, x = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(12, 5)
        net, x, adjacency = net.to(device), x.to(device), edges.to_sparse(layout=layout).to(device)
        optimizer, found = torch.optim.Adam(net.parameters(), 0.05), []
        for _ in range(8):
            hidden = torch.sparse.mm(adjacency, net[1](net[0](x)))
            loss = (adjacency @ net[2](hidden)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    torch.testing.assert_close(losses(DEVICE), losses("cpu"), rtol=1e-4, atol=1e-5)


def test_what_has_no_program_runs_on_the_host_and_says_so(monkeypatch: pytest.MonkeyPatch):
    x = S.to(DEVICE)
    before = fuse.stats()["host_fallbacks"].get("_sparse_softmax", 0)
    torch.sparse.softmax(x, 1)
    assert fuse.stats()["host_fallbacks"]["_sparse_softmax"] == before + 1
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    with pytest.raises(HostFallbackError, match="no program of it for sparse tensors") as caught:
        torch.sparse.softmax(x, 1)
    assert "aten::_sparse_softmax" in str(caught.value) and "test_sparse.py" in str(caught.value)


REFUSED: dict[str, Callable[[Tensor], object]] = {
    "sigmoid": lambda s: s.sigmoid(),
    "sparse plus dense": lambda s: s + torch.ones(4, 6, device=s.device),
    "a factor of another kind": lambda s: torch.add(s.int(), s.int(), alpha=2.5),
    "other sizes": lambda s: s + s.t(),
    "inner sizes": lambda s: torch.sparse.mm(s, torch.ones(4, 2, device=s.device)),
    "uncoalesced values": lambda s: s.values(),
    "its memory": lambda s: s.untyped_storage(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_cpu_refuses_is_refused_in_its_words(name: str):
    said = []
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            REFUSED[name](S.to(device))
        said.append(str(caught.value).partition(". ")[0].partition("\n")[0])
    assert said[1].replace("PrivateUse1", "CPU") == said[0]


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_an_index_out_of_range_is_an_error(device: str):
    with pytest.raises(IndexError, match="out of (range|bounds)"):
        S.to(device).index_select(0, torch.tensor([7], device=device)).to_dense().cpu()


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")  # PyTorch 2.15
def test_it_goes_where_tensors_go(tmp_path):
    x = S.coalesce().to(DEVICE)
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)["x"]
    for one in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), loaded, x.cpu().to(x), x.clone()):
        assert (one.device, one.layout, one.is_coalesced()) == (x.device, x.layout, True)
        torch.testing.assert_close(dense(one), dense(S))
    assert repr(x).startswith("tensor(indices=tensor([[") and "device='tpu:0'" in repr(x)
    assert x.is_sparse and not x.is_sparse_csr and x.device.type == DEVICE
    assert torch.equal(x.coalesce().indices().cpu(), S.coalesce().indices())


def test_one_made_before_the_device_is_used():
    code = (
        "import torch\n"
        "x = torch.sparse_coo_tensor(size=(2, 3), device='tpu', check_invariants=False)\n"
        "print(x.layout, x.device, x.to_dense().sum().item())"
    )
    assert run(code) == "torch.sparse_coo tpu:0 0.0\n"
