"""Finished requests in bulk: one row of numbers each, many rows to an array."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.lab.measure.histogram import Floats, Ints
from forebay.lab.measure.result import OK, REFUSED, STATUSES, TIMEOUT

STATUS_IDS = {status: number for number, status in enumerate(STATUSES)}
COLUMNS = 13
ABSENT = -1.0
"""A chunk that never came."""

_OK = STATUS_IDS[OK]
_REFUSED = STATUS_IDS[REFUSED]
_TIMEOUT = STATUS_IDS[TIMEOUT]


class Finished(msgspec.Struct, frozen=True, gc=False):
    """One request that ended, in whatever way.

    Times are seconds from the run's start. ``at_s`` is the intended start: latency counts from
    there. ``first_at_s`` and ``last_at_s`` are the first and the last content-bearing chunk,
    None when there was none. Gaps between content chunks come one by one (``gaps_s``), or as
    their mean and number where nobody watched each of them (virtual time). ``code`` is the HTTP
    status of what failed; ``cache`` and ``rung`` are Forebay's header values.
    """

    at_s: float
    kind: str
    status: str
    finished_at_s: float
    first_at_s: float | None = None
    last_at_s: float | None = None
    tenant: str = ""
    deadline_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    gaps_s: Sequence[float] = ()
    mean_gap_s: float = 0.0
    gap_count: int = 0
    code: int = 0
    cache: str = ""
    rung: str = ""


class Batch:
    """Rows of ``Finished`` as columns; ``kind`` and ``tenant`` are numbers the recorder gave."""

    def __init__(self, table: Floats, gaps: Floats) -> None:
        self._table = table
        self.gaps = gaps
        self.at, self.finished, self.first, self.last, self.deadline = table[:, :5].T
        self.kind, self.tenant, self.status = table[:, 5:8].astype(np.int64).T
        self.input_tokens, self.output_tokens = table[:, 8:10].astype(np.int64).T
        self.mean_gap = table[:, 10]
        self.gap_count, self.gaps_given = table[:, 11:13].astype(np.int64).T

    @classmethod
    def of(cls, rows: array[float], gaps: array[float]) -> Batch:
        """From flat numbers, ``COLUMNS`` a row, and the rows' gaps one after the other."""
        return cls(np.frombuffer(rows).reshape(-1, COLUMNS), np.frombuffer(gaps))

    def since(self, at_s: float) -> Batch:
        """Only the rows meant to start at ``at_s`` or later."""
        kept = self.at >= at_s
        if kept.all():
            return self
        return Batch(self._table[kept], self.gaps[np.repeat(kept, self.gaps_given)])

    def good(self) -> npt.NDArray[np.bool_]:
        """Answered whole within the deadline."""
        good: npt.NDArray[np.bool_] = self.finished - self.at <= self.deadline
        good &= self.status == _OK
        return good

    def total(self) -> tuple[Ints, Floats]:
        """Row numbers and seconds of what was answered whole or waited for in vain."""
        rows = np.flatnonzero((self.status == _OK) | (self.status == _TIMEOUT))
        return rows, self.finished[rows] - self.at[rows]

    def refused(self) -> tuple[Ints, Floats]:
        """Row numbers and seconds until it was told, of what was refused."""
        rows = np.flatnonzero(self.status == _REFUSED)
        return rows, self.finished[rows] - self.at[rows]

    def ttft(self) -> tuple[Ints, Floats]:
        """Row numbers and seconds to the first chunk; of time-outs without one, the wait."""
        answered = self.first >= 0
        rows = np.flatnonzero(answered | (self.status == _TIMEOUT))
        until = np.where(answered, self.first, self.finished)
        return rows, until[rows] - self.at[rows]

    def tpot(self) -> tuple[Ints, Floats]:
        """Row numbers and seconds per output token after the first, of whole streamed answers."""
        streamed = (self.first >= 0) & (self.last > self.first)
        rows = np.flatnonzero((self.status == _OK) & streamed & (self.output_tokens > 1))
        spread = self.last[rows] - self.first[rows]
        return rows, spread / (self.output_tokens[rows] - 1)

    def itl(self) -> tuple[Ints, Floats, Ints]:
        """Row numbers, gaps and how often each counts."""
        rows = np.repeat(np.arange(len(self.at)), self.gaps_given)
        told = np.flatnonzero(self.gap_count > 0)
        return (
            np.concatenate([rows, told]),
            np.concatenate([self.gaps, self.mean_gap[told]]),
            np.concatenate([np.ones(len(rows), np.int64), self.gap_count[told]]),
        )
