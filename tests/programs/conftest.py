"""Which programs ``make test`` runs in Fused Eager alone, and what programs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fuse

# Of these most of the time goes into compiling single operations for Debug and Strict, which the
# other files' programs and the rules' tests run one by one as well: 81 of 127 s over six files.
IN_FUSED = {
    *("test_attention", "test_convnets", "test_experts", "test_kinds_of_models", "test_optimizers"),
    "test_recurrent",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave their other modes to ``make test-slow``."""
    for item in items:
        call = getattr(item, "callspec", None)
        mode = None if call is None else call.params.get("mode")
        own = item.path.parent.name == "programs" and item.path.stem in IN_FUSED
        if own and mode in ("debug", "strict"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=("xla", "numpy"))
def each_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test on both backends."""
    before = fuse.get_backend()
    fuse.set_backend(request.param)
    yield
    fuse.set_backend(before)
