"""Every rule of both tables is reached by a test, and no operator has two rules in one.

The last test of each file here asks, of the families it is for, that the tests before it have
called every rule (``unreached``). What is asked here is that no family was forgotten.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fuse.backends.numpy.rules import registry as numpy_registry
from fuse.backends.xla.rules import registry as xla_registry
from tests.backends import rule_harness
from tests.backends.rule_harness import DROPPED, Recording, find, module_of

FOLDER = Path(__file__).parent
TABLES = {"xla": ("test_rules_*.py", xla_registry), "numpy": ("test_numpy_*.py", numpy_registry)}


def claims(path: Path) -> Iterator[str]:
    """The families of which the file's last test asks that every rule was reached."""
    last = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(last[-1]) if last else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "unreached":
            assert isinstance(last[-1].body[0], ast.Assert), path
            yield from (ast.literal_eval(argument) for argument in node.args)


@pytest.mark.parametrize("backend", TABLES)
def test_every_family_is_claimed_by_a_file(backend: str) -> None:
    pattern, registry = TABLES[backend]
    package = f"fuse.backends.{backend}.rules."
    families = {module_of(rule).removeprefix(package) for rule in registry.RULES.values()}
    assert len(families) > 30
    claimed = [family for path in sorted(FOLDER.glob(pattern)) for family in claims(path)]
    assert families - set(claimed) == set()
    assert set(claimed) - families == set()


@pytest.mark.parametrize("backend", TABLES)
def test_an_operator_has_one_rule(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, registry = TABLES[backend]
    before = dict(registry.RULES)
    name = {"xla": "XLA", "numpy": "NumPy"}[backend]
    with pytest.raises(ValueError, match=f"^operator aten::add.Tensor has two {name} rules$"):
        registry.rule("add.Tensor")(lambda ctx, x: x)
    assert before == registry.RULES
    monkeypatch.delitem(registry.RULES, "relu")
    with pytest.raises(ValueError, match=f"^operator aten::relu has two {name} rules$"):
        registry.rule("relu", "relu")(lambda ctx, x: x)


def defaults(name: str, rule: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    """Arguments that both the rule and the schema have a default for, and the two defaults."""
    taken = [one for one in find(name)._schema.arguments if one.name not in DROPPED]
    positional = [one for one in taken if not one.kwarg_only]
    for at, own in enumerate(
        list(inspect.signature(rule, follow_wrapped=False).parameters.values())[1:]
    ):
        if own.kind is own.KEYWORD_ONLY:
            found = next((one for one in taken if one.name == own.name), None)
        else:
            found = positional[at] if at < len(positional) else None
        if found is not None and found.has_default_value() and own.default is not own.empty:
            wanted = found.default_value
            yield own.name, own.default, tuple(wanted) if isinstance(wanted, list) else wanted


@pytest.mark.parametrize("backend", TABLES)
def test_defaults_of_rules_are_the_schemas(backend: str) -> None:
    rules = {
        name: rule
        for name, rule in TABLES[backend][1].RULES.items()
        if name not in rule_harness.GONE
    }
    found = [(name, *one) for name, rule in rules.items() for one in defaults(name, rule)]
    assert len(found) > 200
    # Of no dimensions and of None, both mean all of them.
    assert [one for one in found if (one[2] or None) != (one[3] or None)] == []


def test_a_rule_that_nobody_called_is_named() -> None:
    def own(*_: Any) -> None:
        """A rule of this file."""

    def other(*_: Any) -> None:
        """Another one."""

    rules: dict[str, Callable[..., Any]] = {"a": own, "b": other}
    package, family = __name__.rsplit(".", 1)
    table = Recording(rules | {"elsewhere": rule_harness.check})
    assert table.unreached(package, (family,)) == {"a", "b"}
    assert table["a"] is own
    assert table.unreached(package, (family,)) == {"b"}
    with pytest.raises(AssertionError, match="no rules in tests.backends.nowhere"):
        table.unreached(package, ("nowhere",))
