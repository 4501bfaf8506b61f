"""What tells how many connections to a place are worth keeping."""

from __future__ import annotations

from typing import Protocol


class Sizing(Protocol):
    """Sees connections begin and end, says how many are worth keeping."""

    def began(self, now: float) -> None:
        """One more is wanted."""
        ...

    def ended(self, now: float) -> None:
        """One is not needed any more."""
        ...

    def kept(self, now: float) -> int:
        """How many are worth keeping open."""
        ...
