"""A hook of MkDocs: what pages link outside of ``docs`` becomes part of the site.

A link to a file of the checkout, such as ``../examples/digits.py``, leads to a page with its text.
A line that is nothing but a link to a section, ``[...](../README.md#install)``, becomes that
section. So pages can be read on the site and as files.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
log = get_plugin_logger("sources")
FOLDER = "source"
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
INCLUDED = re.compile(r"^\[[^\]]*\]\(\.\./([\w/.-]+\.md)#([\w-]+)\)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OUTSIDE = re.compile(
    r"""<(?:script|img|link|iframe|source|video)\b[^>]*(?:src|href)=["']?(?:https?:)?//[^>]*>"""
)
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".toml": "toml", ".txt": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file that a page, or such a page, links outside of ``docs``."""
    left = sorted(DOCS.glob("*.md"))
    made: set[Path] = set()
    while left:
        for path in _linked(left.pop()):
            if path in made or path.is_relative_to(DOCS):
                continue
            made.add(path)
            left += [path] if path.suffix == ".md" or path.is_dir() else []
            page = File.generated(
                config, _name(path), content=_text(path), inclusion=InclusionLevel.NOT_IN_NAV
            )
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put sections in the place of their links, and have other links lead to the pages."""
    if page.file.generated_by:
        return markdown
    included = INCLUDED.sub(lambda found: _section(ROOT / found[1], found[2]), markdown)
    return LINK.sub(lambda found: f"]({_target(DOCS, found[1], '')}", included)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warn, which a strict build takes for an error, of what a reader would load from elsewhere."""
    for found in OUTSIDE.findall(output):
        log.warning("%s loads %s", page.file.src_uri, found)
    return output


def _linked(path: Path) -> list[Path]:
    """What of the checkout a file links; of a folder, the files in it."""
    if path.is_dir():
        return [one for one in sorted(path.iterdir()) if one.suffix in LANGUAGES]
    found = [(path.parent / link).resolve() for link in LINK.findall(path.read_text())]
    return [one for one in found if one.is_relative_to(ROOT) and one.exists()]


def _name(path: Path) -> str:
    """The page of a file of the checkout, as a file of ``docs``."""
    name = path.relative_to(ROOT).as_posix()
    return f"{FOLDER}/{name}" if name.endswith(".md") else f"{FOLDER}/{name}.md"


def _target(folder: Path, link: str, up: str) -> str:
    """What a link of a file in ``folder`` becomes on a page ``up`` from ``docs``' pages."""
    path = (folder / link).resolve()
    if not path.is_relative_to(ROOT) or not path.exists():
        return link  # MkDocs says that it is dead
    return up + (path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else _name(path))


def _text(path: Path) -> str:
    """The text of a file's page."""
    name = path.relative_to(ROOT).as_posix()
    up = "../" * (_name(path).count("/"))
    if path.is_dir():
        lines = [f"- [`{one.name}`]({up}{_name(one)})" for one in _linked(path)]
        return "\n".join([f"# `{name}`", "", *lines])
    text = path.read_text()
    if path.suffix == ".md":
        return LINK.sub(lambda found: f"]({_target(path.parent, found[1], up)}", text)
    fence = "`" * 4
    return f"# `{name}`\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def _section(path: Path, anchor: str) -> str:
    """A section of a page without its heading, to the next one, its links led as from ``docs``."""
    text = path.read_text()
    prose = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)  # without comments
    for found in re.finditer(r"^(#+) (.+)\n", prose, re.MULTILINE):
        if re.sub(r"[^\w]+", "-", found[2].lower()).strip("-") == anchor:
            following = re.compile(rf"^#{{1,{len(found[1])}}} ", re.MULTILINE)
            end = following.search(prose, found.end())
            section = text[found.end() : end.start() if end else len(text)].strip()
            return LINK.sub(
                lambda link: f"]({Path('..') / path.parent.relative_to(ROOT) / link[1]}", section
            )
    raise ValueError(f"{path.name} has no section #{anchor}")
