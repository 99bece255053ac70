"""Views of views, in-place writes, and writes through views."""

from __future__ import annotations

import pytest
import torch

from tests.programs.harness import compare_with_cpu

pytestmark = pytest.mark.usefixtures("mode")


def data(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to(device)


def test_a_write_through_a_view_reaches_every_other_view():
    def program(device):
        x = data(4, 6, device=device)
        flat, row, block = x.view(-1), x[1], x[1:3, ::2]
        block.mul_(10)
        row += 1
        flat[3:5] = -1
        x.t()[0].zero_()
        return x, flat, row, block

    compare_with_cpu(program)


def test_views_of_views_of_views():
    def program(device):
        x = data(2, 3, 4, device=device)
        y = x.permute(2, 0, 1)[1:].transpose(0, 2)[::2]
        z = y.unsqueeze(1).expand(2, 3, 2, 3)
        w = x.unfold(2, 2, 2).select(0, 1).narrow(1, 1, 1)
        w.add_(100)
        x.diagonal(0, 1, 2).fill_(7)
        return y, z.sum(1), w, x, y.stride(), w.storage_offset()

    compare_with_cpu(program)


def test_as_strided_overlaps_and_is_written():
    def program(device):
        x = data(12, device=device)
        windows = x.as_strided((4, 3), (2, 1), 1)
        before = windows.clone()
        x.as_strided((2, 2), (6, 2), 1).add_(50)
        return before, windows, x

    compare_with_cpu(program)


def test_split_chunk_and_unbind_share_memory():
    def program(device):
        x = data(6, 4, device=device)
        a, b = x.chunk(2)
        left, right = b.split([1, 3], dim=1)
        first, *_ = a.unbind(0)
        torch.Tensor.copy_(left, right[:, :1] * 2)
        first.neg_()
        a.mul_(b)
        return x, a, b, left, right, first

    compare_with_cpu(program)


def test_indexing_reads_and_writes():
    def program(device):
        x = data(5, 4, device=device)
        index = torch.tensor([3, 0, 3]).to(device)
        mask = x > 7
        read = x[index], x[index, index - 1], x[..., -1], x[None, 1:], x[mask]
        x[mask] = 0
        x[index] += 1
        x[1, 2] = 9
        x[:, [0, 2]] = x[:, [2, 0]]
        x.index_add_(0, index, torch.ones(3, 4, device=device))
        x.scatter_(1, index.view(3, 1), -5.0)
        x.masked_fill_(x.eq(9), 0.5)
        return read, x

    compare_with_cpu(program)


def test_out_arguments():
    def program(device):
        x, y = data(2, 3, device=device), torch.ones(2, 3, device=device)
        whole = torch.zeros(4, 3, device=device)
        torch.add(x, y, out=whole[1:3])
        torch.mul(x, y, out=x)
        torch.sum(x, 1, out=whole[0, :2])
        empty = torch.empty(0, device=device)
        torch.cat([x, y], out=empty)
        return whole, x, empty

    compare_with_cpu(program)


def test_resizing():
    def program(device):
        x = data(4, device=device)
        x.resize_(2, 2)
        y = x.clone()
        y.resize_(2, 1).add_(1)
        z = torch.empty(0, device=device)
        z.resize_(3).fill_(2)
        z.resize_as_(x).zero_()
        return x, y, z

    compare_with_cpu(program)


def test_dtypes_seen_through_view():
    def program(device):
        x = torch.tensor([1.0, -2.0, 0.5, 4.0]).to(device)
        bits = x.view(torch.int32)
        bits[1] = 0
        pairs = torch.view_as_complex(x.view(2, 2))
        pairs.mul_(2)
        real = torch.view_as_real(pairs)
        return x, bits, pairs, real, x.view(torch.uint8)[4:8]

    compare_with_cpu(program)


def test_complex_parts_and_conjugates():
    def program(device):
        x = torch.tensor([1 + 2j, 3 - 1j]).to(device)
        x.imag.add_(1)
        x.real[0] = 5
        return x, x.conj(), x.conj() * x, x.real, x.imag.neg(), x.conj().imag

    compare_with_cpu(program)


def test_in_place_operations_between_reads():
    def program(device):
        x = data(3, device=device)
        seen = []
        for step in range(5):
            x.add_(step)
            seen.append(x[step % 3].item())
            x[step % 3] = 0
        return seen, x

    compare_with_cpu(program)


def test_gradients_through_views_and_writes():
    def program(device):
        x = data(3, 4, device=device).div(10).requires_grad_()
        y = x * 2
        y[1] = y[0] + y[2]
        y.t()[1:3].mul_(3)
        z = y.clone()
        z.view(-1)[::3] = 1
        (y.sin().sum() + (z**2).sum()).backward()
        return y, z, x.grad

    compare_with_cpu(program)


def test_broadcasting_writes():
    def program(device):
        x = torch.zeros(3, 4, device=device)
        x += torch.arange(4.0).to(device)
        x[1:] = torch.tensor([[7.0], [8.0]]).to(device)
        x[:, 3] = 2
        x.copy_(x.flip(0))
        x[0] = x[1]
        return x

    compare_with_cpu(program)


def test_expanded_and_empty_tensors():
    def program(device):
        x = data(3, 1, device=device).expand(3, 4)
        none = torch.zeros(0, 3, device=device)
        return x + 1, x.contiguous(), none.sum(0), none + 1, torch.cat([none, x[:, :3]]), none.t()

    compare_with_cpu(program)


def test_copies_between_devices_and_dtypes():
    def program(device):
        x = data(2, 3, device=device)
        host = torch.zeros(3, 2)
        host.t().copy_(x)
        x[:, ::2] = torch.tensor([[9, 8], [7, 6]])
        y = x.to(torch.int64).to(torch.bool).to(torch.float16)
        z = torch.empty(3, 2, dtype=torch.float64, device=device).t()
        z.copy_(x)
        return host, x, y, z, x.t().cpu(), x[1].tolist(), x.numpy(force=True).sum().item()

    compare_with_cpu(program)


def test_many_writes_to_one_buffer():
    def program(device):
        board = torch.zeros(6, 6, device=device)
        for i in range(6):
            board[i, (i * 2) % 6] += i
            board[:, i].clamp_(max=3)
            board.view(36)[i * 5 : i * 5 + 3] -= 0.5
        return board

    compare_with_cpu(program)
