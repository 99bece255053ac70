"""What a random program is made of: views, writes, arithmetic, reads, gradients, storages.

A step works on any tensors: what it is given is taken modulo the sizes that are there, so that the
CPU and the device do the same as long as their tensors' shapes are the same. Arithmetic on real
numbers is of small binary fractions and so exact, whatever order it is done in, until a step of
``SMOOTH`` has run; then bits are not looked at any more (``BITS``).

What the CPU leaves undefined is not drawn: memory that ``resize_`` adds is filled at once, and a
write does not read other elements of the memory that it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

View = Callable[[Tensor, int], Tensor]
Math = Callable[[Tensor, Tensor, int], Tensor]
Write = Callable[[Tensor, Tensor, float], Any]


def axis(x: Tensor, n: int) -> int:
    return n % max(x.dim(), 1)


def total(x: Tensor) -> Tensor:
    """The sum, kept small: numbers are to stay exact."""
    return x.sum() if x.is_complex() else x.sum().clamp(-8, 8)


def total_for(x: Tensor, y: Tensor) -> Tensor:
    """The sum of ``y`` to be copied into ``x``: its last digits are undefined, so where ``x`` is of
    integers it is kept from being nearly one, as four sums of softmax are."""
    cut_off = y.is_floating_point() and not (x.is_floating_point() or x.is_complex())
    return total(y) + 0.3 if cut_off else total(y)


def _narrow(x: Tensor, n: int) -> Tensor:
    size = x.size(axis(x, n))
    start = n % max(size, 1)
    return x.narrow(axis(x, n), start, min(size - start, 1 + n % 3))


def _strided(x: Tensor, n: int) -> Tensor:
    """Other sizes over the same memory, some of whose elements meet."""
    room = x.untyped_storage().nbytes() // x.element_size()
    rows, columns, stride = 1 + n % 3, 1 + n % 2, n % 4
    offset = n % max(room - (rows - 1) * stride - (columns - 1), 1)
    return x.as_strided((rows, columns), (stride, 1), offset)


def _unfold(x: Tensor, n: int) -> Tensor:
    return x.unfold(axis(x, n), min(2, x.size(axis(x, n))), 1 + n % 2)


def _part(x: Tensor, n: int) -> Tensor:
    """The real or imaginary part of complex numbers, of others a view."""
    if not x.is_complex():
        return x.view_as(x)
    return x.real if n % 2 else x.imag


def _negative(x: Tensor, n: int) -> Tensor:
    """The negative as a view; the one of booleans could not even be read on the CPU."""
    return x.view_as(x) if x.dtype == torch.bool else torch._neg_view(x)


VIEWS: dict[str, View] = {
    "transpose": lambda x, n: x.transpose(0, -1),
    "narrow": _narrow,
    "step": lambda x, n: x[:: 1 + n % 3],
    "from the end": lambda x, n: x[..., -1 - n % max(x.size(-1), 1) :],
    "select": lambda x, n: x.select(axis(x, n), n % max(x.size(axis(x, n)), 1)),
    "unsqueeze": lambda x, n: x.unsqueeze(n % (x.dim() + 1)),
    "squeeze": lambda x, n: x.squeeze(),
    "diagonal": lambda x, n: x.diagonal(n % 2),
    "expand": lambda x, n: x.unsqueeze(0).expand(2, *x.shape),
    "flatten": lambda x, n: x.flatten(),
    "view": lambda x, n: x.view(-1),
    "unflatten": lambda x, n: x.unflatten(0, (-1, 1 + n % 2)),
    "as_strided": _strided,
    "unfold": _unfold,
    "chunk": lambda x, n: x.chunk(2, axis(x, n))[-1],
    "unbind": lambda x, n: x.unbind(axis(x, n))[0],
    "detach": lambda x, n: x.detach(),
    "conj": lambda x, n: x.conj(),
    "neg": _negative,
    "part": _part,
    "as real": lambda x, n: torch.view_as_real(x.resolve_conj()),
    "as complex": lambda x, n: torch.view_as_complex(x),
    "movedim": lambda x, n: x.movedim(0, -1),
    "data": lambda x, n: x.data,
}

BITS: dict[str, Write] = {
    "view int32": lambda x, y, n: x.view(torch.int32).sum(),
    "view int16": lambda x, y, n: x.view(torch.int16).clone(),
    "flip signs": lambda x, y, n: x.view(torch.int32).bitwise_xor_(-(2**31)),
    "flip bytes": lambda x, y, n: x.view(torch.uint8)[..., 3::4].bitwise_xor_(128),
}

MATHS: dict[str, Math] = {
    "scale": lambda x, y, n: x * 0.5 + n,
    "neg": lambda x, y, n: -x,
    "abs": lambda x, y, n: x.abs(),
    "sum": lambda x, y, n: x + total(y),
    "sum of an axis": lambda x, y, n: x.sum(axis(x, n), keepdim=True),
    "add": lambda x, y, n: torch.add(x, y, alpha=n),
    "maximum": lambda x, y, n: torch.maximum(x, total(y)),
    "max": lambda x, y, n: x.max(axis(x, n)).values,
    "argmax": lambda x, y, n: x.flatten().argmax(),
    "cat": lambda x, y, n: torch.cat([x, x.flip(0)], axis(x, n)),
    "stack": lambda x, y, n: torch.stack([x, x * 2], n % (x.dim() + 1)),
    "where": lambda x, y, n: torch.where(x > n - 2, x, -x),
    "clone": lambda x, y, n: x.clone(),
    "contiguous": lambda x, y, n: x.contiguous(),
    "clamp": lambda x, y, n: x.clamp(-n, n),
    "sort": lambda x, y, n: x.sort(-1).values,
    "roll": lambda x, y, n: x.roll(n),
    "rounded": lambda x, y, n: x.round(),
    "integers": lambda x, y, n: x.clamp(-99, 99).int(),
    "halves": lambda x, y, n: x.clamp(-99, 99).to(torch.float64),
    "compare": lambda x, y, n: x > total(y),
    "index": lambda x, y, n: x[torch.tensor([n % max(x.size(0), 1), 0], device=x.device)],
    "pad": lambda x, y, n: torch.nn.functional.pad(x, (1, n), value=n),
    "zeros": lambda x, y, n: torch.zeros_like(x),
    "new": lambda x, y, n: x.new_full((2, 1 + n), n),
    "complex": lambda x, y, n: torch.complex(x, x * 2),
    "tril": lambda x, y, n: x.tril(n - 1),
    "empty": lambda x, y, n: x[:0],
}

SMOOTH: dict[str, Math] = {
    "tanh": lambda x, y, n: x.tanh(),
    "mean": lambda x, y, n: x.tanh() * y.tanh().mean(),
    "product": lambda x, y, n: (x @ x.transpose(0, -1)).tanh(),
    "softmax": lambda x, y, n: x.softmax(axis(x, n)),
    "norm": lambda x, y, n: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "linear": lambda x, y, n: torch.nn.functional.linear(x, x.new_full((3, x.size(-1)), 0.25)),
}

WRITES: dict[str, Write] = {
    "add_": lambda x, y, n: x.add_(n),
    "mul_": lambda x, y, n: x.mul_(0.5),
    "add other": lambda x, y, n: x.add_(total(y.detach())),
    "fill_": lambda x, y, n: x.fill_(n),
    "zero_": lambda x, y, n: x.zero_(),
    "neg_": lambda x, y, n: x.neg_(),
    "relu_": lambda x, y, n: x.relu_(),
    "clamp_": lambda x, y, n: x.clamp_(-n, n),
    "copy_": lambda x, y, n: x.copy_(x.flip(0)),
    "copy other": lambda x, y, n: x.copy_(total_for(x, y.detach())),
    "set item": lambda x, y, n: x.__setitem__(int(n) % max(x.size(0), 1), n),
    "set column": lambda x, y, n: x.__setitem__((..., int(n) % max(x.size(-1), 1)), n),
    "set where": lambda x, y, n: x.__setitem__(x > n, 0.5),
    "index_fill_": lambda x, y, n: x.index_fill_(0, torch.tensor([0], device=x.device), n),
    "index_add_": lambda x, y, n: x.index_add_(
        0, torch.tensor([0], device=x.device), x[:1].clone()
    ),
    "scatter_": lambda x, y, n: x.scatter_(
        -1, torch.zeros(x.shape, dtype=torch.int64, device=x.device), n
    ),
    "masked_fill_": lambda x, y, n: x.masked_fill_(x > 1, n),
    "foreach": lambda x, y, n: torch._foreach_add_([x, x], n),
    "out": lambda x, y, n: torch.add(x.clone(), n, out=x),
    "out resized": lambda x, y, n: torch.mul(x.clone(), 2, out=y),
    "t_": lambda x, y, n: x.transpose_(0, -1),
    "squeeze_": lambda x, y, n: x.squeeze_(),
    "unsqueeze_": lambda x, y, n: x.unsqueeze_(0),
    "requires_grad_": lambda x, y, n: x.requires_grad_(),
    "detach_": lambda x, y, n: x.detach_(),
}


def _resize(x: Tensor, y: Tensor, n: float) -> None:
    """A size that its memory may not have yet: what is new there is written at once."""
    before = x.untyped_storage().nbytes() // x.element_size()
    x.resize_(2 + int(n), 3)
    room = x.untyped_storage().nbytes() // x.element_size()
    if room > before:
        with torch.no_grad():
            x.detach().as_strided((room - before,), (1,), before).fill_(7)


def _grown(x: Tensor, y: Tensor, n: float) -> None:
    before = x.untyped_storage().nbytes() // x.element_size()
    more = before + 1 + int(n)
    x.untyped_storage().resize_(more * x.element_size())
    with torch.no_grad():
        x.detach().as_strided((more - before,), (1,), before).fill_(5)


def _set_part(x: Tensor, y: Tensor, n: float) -> None:
    if x.dtype == y.dtype and y.untyped_storage().nbytes() >= 3 * y.element_size():
        x.set_(y.untyped_storage(), 0, (1, 2), (2, 1))


STORAGES: dict[str, Write] = {
    "resize_": _resize,
    "grow": _grown,
    "set_": lambda x, y, n: x.set_(y.detach()),
    "set_ a part": _set_part,
    "set data": lambda x, y, n: setattr(x, "data", y.detach()),
    "swap data": lambda x, y, n: setattr(x, "data", x.detach().clone()),
}

READS: dict[str, Callable[[Tensor, Tensor, int], Any]] = {
    "item": lambda x, y, n: x.flatten()[n % max(x.numel(), 1)].item(),
    "list": lambda x, y, n: x.tolist(),
    "cpu": lambda x, y, n: x.cpu(),
    "truth": lambda x, y, n: bool((x.detach().real > 0).any()),
    "equal": lambda x, y, n: torch.equal(x, y),
    "nonzero": lambda x, y, n: x.nonzero(),
    "text": lambda x, y, n: len(repr(x.detach().cpu())),
    "alike": lambda x, y, n: x.untyped_storage()._cdata == y.untyped_storage()._cdata,
    "wait": lambda x, y, n: None if x.is_cpu else torch.tpu.synchronize(),
}


def _gradient(x: Tensor, y: Tensor, n: int) -> Any:
    if not x.requires_grad:
        return None
    return torch.autograd.grad(x.sum(), y, retain_graph=True, allow_unused=True)


def _backward(x: Tensor, y: Tensor, n: int) -> Any:
    if x.requires_grad:
        (x * x).sum().backward(retain_graph=True)
    return y.grad if y.is_leaf else None


GRADIENTS: dict[str, Callable[[Tensor, Tensor, int], Any]] = {
    "gradient": _gradient,
    "backward": _backward,
}
KINDS = {**VIEWS, **MATHS, **WRITES, **STORAGES, **READS, **GRADIENTS}
