"""Whether transformers may attend by FlexAttention, by modules of its form."""

from __future__ import annotations

import sys
import types

import pytest

from fuse.integrations import flex_in_transformers


def refuses() -> bool:
    """What transformers says on a machine whose accelerator is called ``"tpu"``."""
    return False


def form(*, torch_is_there: bool = True) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        is_torch_available=lambda: torch_is_there, is_torch_flex_attn_available=refuses
    )


@pytest.mark.parametrize("torch_is_there", [True, False])
def test_it_is_available_wherever_pytorch_is(torch_is_there: bool) -> None:
    module = form(torch_is_there=torch_is_there)
    flex_in_transformers.extend(module)
    assert module.is_torch_flex_attn_available() == torch_is_there


def test_a_package_that_took_the_function_before_has_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = types.SimpleNamespace(is_torch_flex_attn_available=refuses)
    monkeypatch.setitem(sys.modules, "transformers.utils", package)
    flex_in_transformers.extend(form())
    assert package.is_torch_flex_attn_available()


def test_a_version_without_the_question_is_left_alone() -> None:
    module = types.SimpleNamespace(is_torch_available=lambda: True)
    flex_in_transformers.extend(module)
    assert vars(module).keys() == {"is_torch_available"}
