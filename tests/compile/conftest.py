from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Dynamo warns of what PyTorch itself still uses, and does to the results of a graph break."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"))


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Every test compiles its own: Dynamo forgets what the last one compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
