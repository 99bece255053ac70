"""Programs whose sizes are data, and how many executables twelve calls of each may make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

Program = Callable[[torch.Generator, torch.device], Sequence[torch.Tensor]]


def _drawn(values: torch.Generator, device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=values).to(device)


def masked(values: torch.Generator, device: torch.device) -> Sequence[torch.Tensor]:
    """Rows and elements that a mask takes; in one call it takes none."""
    x = _drawn(values, device, 64, 4)
    least = 9.0 if values.initial_seed() == 5 else 0.3
    some = x[x > least]
    return (x[x[:, 0] > least] * 2).sum(0), some, some.mean(), torch.masked_select(x, x > 0).exp()


def where(values: torch.Generator, device: torch.device) -> Sequence[torch.Tensor]:
    """Positions of a condition, read with and written to."""
    x = _drawn(values, device, 16, 8)
    i, j = torch.where(x > 0.2)
    return i, j, x[i, j] * 3, x.nonzero(), x.index_put((i, j), x[i, j] * 2)


def unique(values: torch.Generator, device: torch.device) -> Sequence[torch.Tensor]:
    """Numbers that are there, and how often."""
    x = torch.randint(0, 60, (64,), generator=values).to(device)
    found, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    return found, inverse, counts, (found * counts).sum(), found[inverse]


def experts(values: torch.Generator, device: torch.device) -> Sequence[torch.Tensor]:
    """Each token by two of three experts, found by ``where``, trained."""
    x = _drawn(values, device, int(torch.randint(17, 33, (1,), generator=values)), 8)
    gate, weights = _drawn(values, device, 8, 3), _drawn(values, device, 3, 8, 8)
    leaves = [gate.requires_grad_(), weights.requires_grad_()]
    shares, chosen = (x @ gate).softmax(-1).topk(2, -1)
    mask = F.one_hot(chosen, 3).permute(2, 1, 0)
    out = torch.zeros_like(x)
    for number in range(3):
        which, token = torch.where(mask[number])
        made = torch.tanh(x[token] @ weights[number]) * shares[token, which, None]
        out = out.index_add(0, token, made)
    return out.detach(), *torch.autograd.grad(out.square().sum(), leaves)


def sorted_experts(values: torch.Generator, device: torch.device) -> Sequence[torch.Tensor]:
    """The tokens of an expert behind those of the one before, as in inference."""
    x = _drawn(values, device, int(torch.randint(17, 33, (1,), generator=values)), 8)
    gate, weights = _drawn(values, device, 8, 3), _drawn(values, device, 3, 8, 8)
    shares, chosen = (x @ gate).softmax(-1).topk(2, -1)
    order = chosen.flatten().argsort(stable=True)
    ordered, made, first = x[order // 2], [], 0
    for number, count in enumerate(chosen.flatten().bincount(minlength=3).tolist()):
        made.append(torch.tanh(ordered[first : first + count] @ weights[number]))
        first += count
    out = torch.cat(made)
    back = torch.empty_like(out)
    back[order] = out
    return [(back.view(len(x), 2, 8) * shares[..., None]).sum(1)]


def repeated(values: torch.Generator, device: torch.device) -> Sequence[torch.Tensor]:
    """Rows as often as a tensor says, and how often numbers are there."""
    x, counts = _drawn(values, device, 10, 4), torch.randint(0, 6, (10,), generator=values)
    long = x.repeat_interleave(counts.to(device), 0)
    return long.cumsum(0), counts.to(device).bincount().float().softmax(0)


def ragged(values: torch.Generator, device: torch.device) -> Sequence[torch.Tensor]:
    """Rows of several lengths in one batch, by PyTorch and by hand."""
    counts = torch.randint(3, 30, (4,), generator=values).tolist()
    rows = [_drawn(values, device, count, 4) for count in counts]
    batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    other = torch.zeros(4, max(counts), 4, device=device)
    for number, row in enumerate(rows):
        other[number, : len(row)] = row
    return batch, other, (batch * other).sum(1)


PROGRAMS: dict[str, tuple[Program, int]] = {
    "masked": (masked, 16),
    "where": (where, 8),
    "unique": (unique, 6),
    "experts": (experts, 40),
    "sorted experts": (sorted_experts, 20),
    "repeated": (repeated, 12),
    "ragged": (ragged, 12),
}
