"""Small faults of a source: a bound, a condition, a sign, a number, a field of a key.

One is made by replacing the text of one expression, so that everything else, line numbers among
it, stays as it is.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
WORDS = ("describe", "warn", "debug", "info", "warning", "Refused")
"""Functions whose arguments are texts for people."""
SETTINGS = ("dataclass", "lru_cache", "cache")
"""Decorators whose arguments change no result."""
UNSEEN = ("strict",)
"""Keyword arguments that only ask what holds anyway."""


@dataclass(frozen=True)
class Mutant:
    """One fault: ``text`` of ``file`` is the whole source with it; ``lines`` are where it is."""

    file: str
    lines: range
    before: str
    after: str
    number: int
    text: str

    @property
    def name(self) -> str:
        """The same as long as its lines are."""
        parts = (self.file, self.before, self.after, str(self.number))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def difference(self) -> str:
        """The lines before and after, as a diff."""
        pair = (self.before.splitlines(), self.after.splitlines())
        found = [one for one in difflib.ndiff(*pair) if one[0] in "-+"]
        return "\n".join([f"{self.file}:{self.lines.start}", *found])


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """All of a source's, in its order."""
    lines = source.splitlines(keepends=True)
    seen: Counter[tuple[str, str]] = Counter()
    for node, replacement in _faults(ast.parse(source)):
        text = _replaced(lines, node, replacement)
        span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        before = "".join(lines[span.start - 1 : span.stop - 1])
        changed = text.splitlines(keepends=True)
        more = len(changed) - len(lines)
        after = "".join(changed[span.start - 1 : span.stop - 1 + more])
        seen[before, after] += 1
        yield Mutant(file, span, before, after, seen[before, after], text)


def _replaced(lines: list[str], node: ast.expr | ast.stmt, replacement: str) -> str:
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset or 0 :].decode()
    return "".join([*lines[:first], head + replacement + tail, *lines[last + 1 :]])


def _faults(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for child in _children(tree):
        for one in _of(child):
            yield child, one  # type: ignore[misc]
        yield from _faults(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Those that are part of what is computed: no annotations, decorators' settings or texts."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr)) or _is_for_checkers(node):
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if node.name in ("__repr__", "__str__"):
            return
        yield from (one for one in node.decorator_list if _called(one) not in SETTINGS)
        yield from (one for one in [*node.args.defaults, *node.args.kw_defaults] if one)
        yield from node.body
        return
    if isinstance(node, ast.ClassDef):
        yield from node.body
        return
    if isinstance(node, ast.Call) and _called(node) in WORDS:
        return
    for name, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            hidden = isinstance(one, ast.keyword) and one.arg in UNSEEN
            if isinstance(one, ast.Tuple) and _takes_apart(node):
                yield from one.elts
            elif isinstance(one, ast.AST) and name != "annotation" and not hidden:
                yield one


def _takes_apart(node: ast.AST) -> bool:
    """An index, or an assignment to several: every element of its tuple has its own place."""
    names = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(node, ast.Subscript) or isinstance(names, ast.Tuple)


def _is_for_checkers(node: ast.AST) -> bool:
    """``if TYPE_CHECKING``, and names of types."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    value = node.value if isinstance(node, ast.Assign) else None
    return isinstance(value, ast.Subscript) and ast.unparse(value).split("[")[0][:1].isupper()


def _called(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _of(node: ast.AST) -> Iterator[str]:
    """The texts that may stand in a node's place."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                changed = [*node.ops[:at], other(), *node.ops[at + 1 :]]
                yield _within(ast.Compare(node.left, changed, node.comparators))
    elif isinstance(node, ast.BoolOp):
        other_kind = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield _within(ast.BoolOp(other_kind, node.values))
        for at in range(len(node.values)):
            rest = [*node.values[:at], *node.values[at + 1 :]]
            yield _within(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if not isinstance(node.left, (ast.JoinedStr, ast.Constant)) or _is_number(node.left):
            yield _within(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield _within(node.operand)
    elif isinstance(node, ast.IfExp):
        yield _within(ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))
    else:
        yield from _of_others(node)


def _of_others(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and _is_number(node):
        yield repr(node.value + 1)  # type: ignore[operator]
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        for at in range(len(node.elts)):
            rest = [*node.elts[:at], *node.elts[at + 1 :]]
            yield ast.unparse(ast.Tuple(rest, node.ctx))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "pass"
    elif isinstance(node, ast.Continue):
        yield "break"
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        other = OPERATORS[type(node.op)]()
        yield ast.unparse(ast.AugAssign(node.target, other, node.value))


def _within(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def _is_number(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and not isinstance(node.value, bool)
    )
