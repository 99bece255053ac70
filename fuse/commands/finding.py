"""What ``fuse doctor`` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``hint`` says what to do where it is not in order."""

    what: str
    value: str
    ok: bool = True
    hint: str = ""

    def __str__(self) -> str:
        line = f"{'ok ' if self.ok else 'BAD'}  {self.what:<15}{self.value}"
        return line if self.ok else f"{line}\n     hint: {self.hint}"
