"""What ``device_map="auto"`` is offered, by a module of accelerate's form."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from fuse.device import lazy
from fuse.integrations import device_map

HOST = 1 << 40


def offered(found: dict[Any, int], given: dict[Any, Any] | None = None) -> dict[Any, int]:
    """What the extended module answers where accelerate by itself would say ``found``."""

    def get_max_memory(given: dict[Any, int] | None = None) -> dict[Any, int]:
        assert given is None or all(isinstance(name, str) for name in given) or 0 in found
        return dict(found if given is None else given)

    module = types.SimpleNamespace(get_max_memory=get_max_memory, convert_file_size_to_int=int)
    device_map.extend(module)
    result: dict[Any, int] = module.get_max_memory(given)
    return result


def test_the_device_comes_before_the_host_and_its_memory_is_offered_once() -> None:
    answer = offered({"cpu": HOST})
    count = torch.tpu.device_count()
    assert list(answer)[:count] == list(range(count))
    shared = lazy.engine().backend.shares_host_memory()
    assert ("cpu" in answer) != shared
    assert all(0 < answer[index] <= torch.tpu.mem_get_info(index)[1] for index in range(count))


def test_memory_of_its_own_stands_beside_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(lazy.engine().backend), "shares_host_memory", lambda self: False)
    assert offered({"cpu": HOST})["cpu"] == HOST


@pytest.mark.parametrize("found", [{0: 5, "cpu": HOST}, {"mps": 7}])
def test_another_accelerator_goes_first(found: dict[Any, int]) -> None:
    assert offered(found) == found


def test_what_the_program_names_is_all_that_is_used() -> None:
    assert offered({"cpu": HOST}, {"cpu": 9}) == {"cpu": 9}
    given = {"cpu": "9", 0: "8"}
    answer = offered({"cpu": HOST}, given)
    assert given == {"cpu": 9, 0: 8}  # in place, as accelerate does
    assert list(answer.items()) == [(0, 8), ("cpu", 9)]
    assert offered({0: 5, "cpu": HOST}, {0: 3}) == {0: 3}
