"""What a comparison of two results says: values to show, sentences to read."""

from __future__ import annotations

from typing import Literal

import msgspec

Direction = Literal["higher", "lower", "same", "unknown"]


class Change(msgspec.Struct, frozen=True):
    """One figure of one kind of request, before and after.

    ``change`` is relative (0.2: a fifth more); of shares it is the plain difference. ``low`` and
    ``high`` bound it; all intervals of a comparison hold together at its confidence.
    """

    kind: str
    """Empty: all requests."""
    figure: str
    """``goodput_per_s``, ``ok_per_s``, ``goodput_share``, ``ttft_p99`` …"""
    unit: str
    """``1/s``, ``share`` or ``s``."""
    before: float
    after: float
    change: float
    low: float
    high: float
    direction: Direction
    """``unknown`` when the runs cannot tell (nothing answered, too few slices)."""
    better: bool | None = None
    """Whether the change is for the better; None without one."""


class Comparison(msgspec.Struct, frozen=True):
    """Every figure compared; ``sentences`` say what changed beyond noise, in English."""

    changes: tuple[Change, ...]
    sentences: tuple[str, ...]
    differences: tuple[str, ...] = ()
    """What differs between the two set-ups."""
    warnings: tuple[str, ...] = ()
    confidence: float = 0.95
    resamples: int = 1_000
    block_slices: tuple[int, int] = (1, 1)
    """Length of the bootstrap's blocks in each run."""
    slices: tuple[int, int] = (0, 0)
    kind: str = "comparison"
    schema: int = 1

    @property
    def changed(self) -> bool:
        """Whether anything changed beyond noise."""
        return any(change.direction in ("higher", "lower") for change in self.changes)
