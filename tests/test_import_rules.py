"""The tree's import rules, read from the sources; no module is imported for it.

    commands > aot > (report | torch_tpu) > (modes | kernels | distributed | integrations) > compile
             > device > engine > (plan | backends | cache) > (trace | native)
             > (bounded, errors, config, ports, versions)

A module may import what stands strictly below it, and its own folder; plan, backends and cache
never import each other. Only XLA's backend imports JAX, and what programs with kernels load:
kernels are JAX functions. What only XLA's CPU platform needs is known to XLA's backend alone.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.layers import MOST_LINES

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "fuse": ROOT / "fuse",
    "fuse.backends": ROOT / "backends",
    "fuse.cache": ROOT / "cache",
    "fuse.examples": ROOT / "examples",
}
LEVELS = (
    ("bounded", "errors", "config", "ports", "versions"),
    ("native", "trace"),
    ("plan", "backends", "cache"),
    ("families",),
    ("engine",),
    ("device",),
    ("compile",),
    ("modes", "kernels", "distributed", "integrations"),
    ("report", "examples", "torch_tpu"),
    ("aot",),
    ("commands",),
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
TOGETHER = ({"errors", "config", "versions"},)
JAX = ("fuse.backends.fake", "fuse.backends.xla", "fuse.kernels", "fuse.torch_tpu")
CPU = "fuse.backends.xla.cpu"
FACE = "fuse"  # fuse/__init__.py: it loads its names lazily, so anybody may import it


def modules() -> dict[str, Path]:
    """Every module of the installed package and its file."""
    found: dict[str, Path] = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each import; ``from a import b`` gives ``a.b`` where that is a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in MODULES else node.module


def part(module: str) -> str:
    """The second name of a module of ours: its place in ``LEVELS``."""
    return module.split(".")[1] if "." in module else FACE


def broken(importer: str, imported: str) -> str | None:
    """Why ``importer`` may not import ``imported``, both ours; ``None`` if it may."""
    above, below = part(importer), part(imported)
    if below == FACE or above == below:
        return None
    if above == FACE:
        return "the face loads its names lazily"
    for name in (above, below):
        if name not in LEVEL:
            return f"{name} has no place in LEVELS yet"
    if LEVEL[below] < LEVEL[above] or any({above, below} <= group for group in TOGETHER):
        return None
    return f"{above} stands beside or below {below}"


def violations(name: str, source: str) -> list[str]:
    found = []
    for line, imported in imports(ast.parse(source)):
        top = imported.split(".")[0]
        if top in {"jax", "jaxlib"} and not name.startswith(JAX):
            found.append(f"{name}:{line} imports {top}: only {', '.join(JAX)} may")
        if top in {"backends", "cache", "examples"}:
            found.append(f"{name}:{line} imports {imported}: say fuse.{imported}")
        if imported.startswith(f"{CPU}.") and not name.startswith(
            (CPU, "fuse.backends.xla.backend")
        ):
            found.append(f"{name}:{line} imports {imported}: ask the Platform")
        if top == "fuse":
            reason = broken(name, imported)
            if reason is not None:
                found.append(f"{name}:{line} imports {imported}: {reason}")
    return found


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_what_stands_below_it(name: str) -> None:
    assert part(name) == FACE or part(name) in LEVEL, f"{name} has no place in LEVELS yet"
    assert violations(name, MODULES[name].read_text()) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("fuse.plan.planner", "from fuse.cache.key import Key"),
        ("fuse.cache.tiered", "import fuse.backends.base"),
        ("fuse.backends.xla.emit", "from fuse.plan import plan"),
        ("fuse.trace.node", "from fuse.engine import engine"),
        ("fuse.backends.xla.rules.matmul", "from fuse.backends.xla.cpu import kernels"),
        ("fuse.native.build", "from fuse.trace.node import Node"),
        ("fuse.engine.engine", "def late():\n    from fuse.device import lazy"),
        ("fuse.errors", "from fuse.trace.node import Node"),
        ("fuse.trace.views", "import jax.numpy as jnp"),
        ("fuse.backends.numpy.backend", "from jax import Array"),
        ("fuse", "from fuse.modes import set_mode"),
        ("fuse.engine.engine", "from cache.key import Key"),
        ("fuse.examples.digits", "from fuse.commands.demo.report import plot"),
    ],
)
def test_a_broken_rule_is_seen(name: str, source: str) -> None:
    assert len(violations(name, source)) == 1


@functools.cache
def first_imports(name: str, source: str) -> set[str]:
    """The modules of ours that must be there before ``name`` is: packages on their way, too."""
    top = ast.parse(source)
    top.body = [node for node in top.body if not isinstance(node, ast.If)]
    for node in ast.walk(top):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = []
    found = {imported for _, imported in imports(top)}
    parts = [imported.split(".") for imported in found]
    found = {".".join(path[:size]) for path in parts for size in range(1, len(path) + 1)}
    return {one for one in found if one in MODULES and not f"{name}.".startswith(f"{one}.")}


def cycle(
    sources: dict[str, str], found: Callable[[str, str], set[str]] = first_imports
) -> list[str]:
    """Modules of which none can be imported first; empty where there are none."""
    graph = {name: found(name, source) for name, source in sources.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_any_module_can_be_imported_first() -> None:
    sources = {name: path.read_text() for name, path in MODULES.items()}
    assert cycle(sources) == []
    # The rules' package imports every rule, and each asks the platform for its kernels.
    late = "from fuse.backends.xla.rules.context import RuleContext"
    assert cycle(sources | {"fuse.backends.xla.platform": late}) != []
    assert cycle(sources | {"fuse.backends.xla.platform": f"def f():\n    {late}"}) == []


@functools.cache
def late_imports(name: str, source: str) -> set[str]:
    """The modules of ours that ``name`` imports ever: in functions and by name, too; but not those
    whose names only its annotations have. The face, which loads its names lazily, is none."""
    top = ast.parse(source)
    for node in ast.walk(top):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = {imported for _, imported in imports(top)}
    for node in ast.walk(top):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            argument = node.args[0]
            if isinstance(argument, ast.Constant):
                found.add(str(argument.value))
    return {one for one in found if one in MODULES and one not in {name, FACE}}


def test_no_modules_import_each_other_in_a_circle() -> None:
    sources = {name: path.read_text() for name, path in MODULES.items()}
    assert cycle(sources, late_imports) == []
    for late in (
        "def f():\n    from fuse.device import lazy",
        'def f():\n    importlib.import_module("fuse.device.lazy")',
    ):
        name = "fuse.device.sharing"
        found = cycle(sources | {name: f"{sources[name]}\n{late}"}, late_imports)
        assert set(found) == {"fuse.device.lazy", name}
    typing = "if TYPE_CHECKING:\n    from fuse.device import lazy"
    assert cycle(sources | {name: f"{sources[name]}\n{typing}"}, late_imports) == []


def test_modules_are_short() -> None:
    lines = {name: path.read_text().count("\n") for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_examples_are_plain_pytorch() -> None:
    for name, path in MODULES.items():
        if name.startswith("fuse.examples"):
            found = [imported for _, imported in imports(ast.parse(path.read_text()))]
            # One example may be another's model.
            tops = {one.split(".")[0] for one in found if not one.startswith("fuse.examples")}
            assert not tops & {"fuse", "jax"}, name


def test_every_folder_with_modules_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {name if path.name == "__init__.py" else name.rpartition(".")[0]
                for name, path in MODULES.items()}  # fmt: skip
    assert set(settings["packages"]) >= packages
    assert {name: str(path.relative_to(ROOT)) for name, path in FOLDERS.items()} == settings[
        "package-dir"
    ]


@pytest.mark.parametrize(
    "statement", ["import fuse", "import torch; import fuse", "from fuse import set_mode, stats"]
)
def test_importing_starts_nothing(statement: str) -> None:
    heavy = ("jax", "jaxlib", "fuse.engine.engine", "fuse.native.build", "fuse.device._core")
    code = f"import sys; {statement}; print([n for n in {heavy!r} if n in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


def test_importing_fuse_does_not_import_torch() -> None:
    code = "import sys, fuse; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


@pytest.mark.parametrize("name", ["stats", "explain", "compare", "set_mode", "kernel", "to_jax"])
def test_a_public_name_may_be_what_imports_torch(name: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import fuse; fuse.{name}; import torch; torch.tpu.is_available()"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
