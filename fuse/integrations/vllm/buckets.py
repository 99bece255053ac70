"""To which sizes a step of vLLM's is padded, so that a steady server compiles nothing.

A step has so many tokens, and its longest text so many pages. Both are rounded up here, and all
other sizes follow from the two, so the programs that a server can need are few and known.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

TILE = 8
"""Queries of one text that attend together where a step holds more than one token of a text."""
SMALLEST_TOKENS = 8
SMALLEST_TEXT = 128
"""Tokens of context below which steps are not told apart."""


@dataclass(frozen=True)
class Shape:
    """The sizes of one step, padded.

    Attributes:
        tokens: tokens that the model computes.
        rows: texts of which a next token is drawn.
        tiles: groups of queries that attend to the pages of one text.
        width: queries in each of them; one where every text has one token.
        pages: pages that each of them reads.
    """

    tokens: int
    rows: int
    tiles: int
    width: int
    pages: int


@dataclass(frozen=True)
class Buckets:
    """The shapes of a server's steps.

    Attributes:
        most_tokens: tokens that vLLM's scheduler puts in one step, at most.
        most_texts: texts in one step, at most.
        longest: tokens of one text, at most.
        page: tokens that a page holds.
    """

    most_tokens: int
    most_texts: int
    longest: int
    page: int

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """Numbers of tokens, ascending."""
        return _doubled(SMALLEST_TOKENS, self.most_tokens)

    @cached_property
    def texts(self) -> tuple[int, ...]:
        """Numbers of tokens of a step in which each text has one, ascending."""
        return _doubled(SMALLEST_TOKENS, self.most_texts)

    @cached_property
    def pages(self) -> tuple[int, ...]:
        """Numbers of pages of one text, ascending."""
        most = -(-self.longest // self.page)
        return _doubled(min(most, -(-SMALLEST_TEXT // self.page)), most)

    def shape(self, tokens: int, longest_query: int, longest_text: int) -> Shape:
        """The padded sizes of a step.

        Args:
            tokens: all tokens that the step computes.
            longest_query: tokens that it computes of one text, at most.
            longest_text: tokens of one text, the earlier ones with them, at most.
        """
        pages = _at_least(self.pages, -(-longest_text // self.page))
        if longest_query == 1:
            texts = _at_least(self.texts, tokens)
            return Shape(texts, texts, texts, 1, pages)
        padded = _at_least(self.tokens, tokens)
        rows = min(padded, self.texts[-1])
        # Each text fills its tiles but the last one.
        tiles = min(padded, -(-padded // TILE) + rows)
        return Shape(padded, rows, tiles, TILE, pages)

    def all(self) -> Iterator[Shape]:
        """Every shape that ``shape`` can give, each once; the dearest first."""
        for pages in reversed(self.pages):
            for tokens in reversed(self.tokens):
                yield self.shape(tokens, min(tokens, 2), pages * self.page)
            for texts in reversed(self.texts):
                yield self.shape(texts, 1, pages * self.page)


def _doubled(smallest: int, most: int) -> tuple[int, ...]:
    sizes = []
    while smallest < most:
        sizes.append(smallest)
        smallest *= 2
    return (*sizes, most)


def _at_least(sizes: tuple[int, ...], wanted: int) -> int:
    return sizes[bisect.bisect_left(sizes, wanted)]
