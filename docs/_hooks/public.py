"""An extension of Griffe, which reads docstrings: the lazy names of ``fuse``, and a check."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.plugins import get_plugin_logger

PAGES = Path(__file__).parents[1]
log = get_plugin_logger("public")


class Public(griffe.Extension):
    """Gives ``fuse`` its public names, and warns of each name on a page that has no docstring."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Called once the sources are read, before a page is made of them."""
        public = ast.literal_eval(str(pkg["_PUBLIC"].value))
        for name, module in public.items():
            pkg.set_member(name, griffe.Alias(name, f"{module}.{name}"))
        pkg.exports = [*public]
        pages = "".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
        for shown in re.findall(r"^::: fuse\.?(.*)$", pages, re.MULTILINE):
            _check(pkg[shown] if shown else pkg)


def _check(shown: griffe.Object | griffe.Alias) -> None:
    """Warn of it and of its public members, which a strict build takes for errors."""
    if not shown.has_docstring and not shown.name.startswith("__"):
        log.warning("%s is public and has no docstring", shown.path)
    for member in shown.members.values():
        if member.is_alias and member.name not in (shown.exports or ()):
            continue  # imported; what it stands for may be no source of ours
        in_section = member.is_attribute and shown.is_class  # "Attributes:" of the class
        if member.is_public and not (member.is_module or in_section):
            _check(member)
