"""Generators of the device: offsets, seeds, states, copies, and what is refused."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.device.accelerator.alike import assert_same_error
from tests.device.helpers import DEVICE


def draw(generator: torch.Generator, count: int = 5) -> list[float]:
    return torch.rand(count, device=DEVICE, generator=generator).tolist()


def test_an_offset_is_a_place_in_the_stream_of_numbers():
    generator = torch.Generator(DEVICE).manual_seed(3)
    assert generator.get_offset() == 0
    first, place = draw(generator), generator.get_offset()
    second = draw(generator)
    assert generator.get_offset() > place > 0 and first != second
    generator.set_offset(place)
    assert draw(generator) == second
    generator.set_offset(0)
    assert draw(generator) == first
    assert generator.manual_seed(3).get_offset() == 0


@pytest.mark.parametrize("seed", [0, 1, -1, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_seeds_are_read_as_on_the_cpu(seed: int):
    expected = torch.Generator().manual_seed(seed).initial_seed()
    generator = torch.Generator(DEVICE).manual_seed(seed)
    assert generator.initial_seed() == expected
    numbers = draw(generator)
    assert draw(torch.Generator(DEVICE).manual_seed(expected)) == numbers
    assert draw(torch.Generator(DEVICE).manual_seed(expected ^ 1)) != numbers


def test_a_seed_that_no_generator_takes():
    for seed in (1 << 64, -(1 << 63) - 1):
        assert_same_error(lambda device: torch.Generator(device).manual_seed(seed), "Overflow")  # noqa: B023


def test_seeds_of_the_operating_system_differ():
    seeds = set()
    for _ in range(4):
        torch.tpu.seed_all()
        seeds.add(torch.tpu.initial_seed())
        seeds.add(torch.Generator(DEVICE).seed())
    assert len(seeds) == 8


COPIES: dict[str, Callable[[torch.Generator], Any]] = {
    "clone_state": torch.Generator.clone_state,
    "pickle": lambda generator: pickle.loads(pickle.dumps(generator)),
    "deepcopy": copy.deepcopy,
    "set_state": lambda generator: (
        other := torch.Generator(DEVICE),
        other.set_state(generator.get_state()),
    )[0],
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_goes_on_from_the_same_place_by_itself(name: str):
    generator = torch.Generator(DEVICE).manual_seed(11)
    draw(generator)
    twin = COPIES[name](generator)
    assert twin.device == torch.device("tpu", 0) and twin.initial_seed() == 11
    numbers = [draw(generator), draw(generator)]
    assert [draw(twin), draw(twin)] == numbers


STATES = {
    "too short": torch.zeros(3, dtype=torch.uint8),
    "of another dtype": torch.zeros(16),
    "on the device": torch.zeros(16, dtype=torch.uint8).to(DEVICE),
    "the CPU's": torch.Generator().get_state(),
}


@pytest.mark.parametrize("name", STATES)
def test_what_is_no_state_is_refused_and_changes_nothing(name: str):
    generator = torch.Generator(DEVICE).manual_seed(5)
    before = torch.tpu.get_rng_state()
    for restore in (generator.set_state, torch.tpu.set_rng_state):
        with pytest.raises(RuntimeError, match="must be a CPU torch.uint8 tensor of 16 elements"):
            restore(STATES[name])
    assert torch.equal(torch.tpu.get_rng_state(), before)
    assert draw(generator) == draw(torch.Generator(DEVICE).manual_seed(5))


def test_a_block_that_keeps_the_state_does_so_in_an_exception():
    torch.manual_seed(4)
    with (
        pytest.raises(KeyError),
        torch.random.fork_rng(devices=range(torch.tpu.device_count()), device_type="tpu"),
    ):
        torch.manual_seed(8)
        inner = torch.rand(3, device=DEVICE).tolist()
        raise KeyError
    outer = torch.rand(3, device=DEVICE).tolist()
    torch.manual_seed(4)
    assert torch.rand(3, device=DEVICE).tolist() == outer != inner


def test_a_generator_of_the_device_draws_nothing_on_the_cpu():
    generator = torch.Generator(DEVICE)
    with pytest.raises(RuntimeError, match="at least two devices, tpu:0 and cpu"):
        torch.empty(3).normal_(generator=generator)
    assert generator.get_offset() == 0


def test_states_of_all_devices_go_through_a_file():
    torch.manual_seed(6)
    torch.rand(3, device=DEVICE)
    file = io.BytesIO()
    torch.save({"device": torch.tpu.get_rng_state_all(), "cpu": torch.get_rng_state()}, file)
    numbers = torch.rand(4, device=DEVICE).tolist()
    file.seek(0)
    torch.tpu.set_rng_state_all(torch.load(file)["device"])
    assert torch.rand(4, device=DEVICE).tolist() == numbers
    with pytest.raises(ValueError, match="zip"):
        torch.tpu.set_rng_state_all([])
