"""What reports that are pages have in common."""

from __future__ import annotations

from pathlib import Path


class Page:
    """Something that can be shown as a page."""

    def to_html(self) -> str:
        """The page."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Write ``to_html()`` to a file, UTF-8, replacing what is there.

        Args:
            path: the file.

        Returns:
            The path.

        Raises:
            OSError: it cannot be written.
        """
        target = Path(path)
        target.write_text(self.to_html(), encoding="utf-8")
        return target
