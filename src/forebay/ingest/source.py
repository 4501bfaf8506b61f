"""The bytes a format module works on, and what is known about them."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple


class Source(NamedTuple):
    """A file on its way into a parser; ``charset`` is what its envelope declared, if anything."""

    data: bytes
    name: str
    media_type: str
    charset: str | None = None

    @property
    def stem(self) -> str:
        """The file's name without folder and extension, for documents without a title."""
        return PurePath(self.name.replace("\\", "/")).stem

    @property
    def extension(self) -> str:
        """The lower-case extension with its dot, or ""."""
        return PurePath(self.name.replace("\\", "/")).suffix.lower()
