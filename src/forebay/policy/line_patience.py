"""How long one may wait in the line of a band, and when that line stands (CoDel for each band).

One state a band: what is a standing line for questions is none for reports. The bounds follow the
slack of the band, which is the time that clients allow beyond what the request takes alone.
"""

from __future__ import annotations

import math

from forebay.policy.band_queue import BandQueue
from forebay.policy.bands import Bands
from forebay.policy.engine_model import EngineModel
from forebay.policy.queue import Waiting
from forebay.policy.shed import DelayShedder, DrainRate, ShedSettings
from forebay.policy.ticket import Ticket

STANDING, BURST = 0.3, 0.6
"""Shares of the slack that one may wait, in a line that stands and in a burst."""
MAX_STANDING, MAX_BURST = 8.0, 16.0
"""The same as multiples of the time alone: who allows a minute for a second's work waits less."""
AGAIN_SHARE, MAX_AGAIN_S = 0.01, 0.02
"""Of the time alone, and at most, between two tries of a line."""
RENEWED_S = 5.0
"""An empty line's bounds are taken anew after so long."""


class _Line:
    __slots__ = ("alone_s", "drain", "made_at", "shedder")

    def __init__(self) -> None:
        self.alone_s = 0.0
        self.drain = DrainRate()
        self.shedder: DelayShedder | None = None
        self.made_at = -math.inf


class LinePatience:
    """The lines of one gate, by band."""

    def __init__(
        self, settings: ShedSettings, model: EngineModel, bands: Bands, lines: BandQueue[Ticket]
    ) -> None:
        self._settings = settings
        self._model = model
        self._bands = bands
        self._queue = lines
        self._lines: dict[int, _Line] = {}

    def changed(self, band: int, now: float) -> None:
        """The line of a band filled or emptied."""
        waiting = self._queue.waiting(band)
        self._line(band).drain.at(now, busy=bool(waiting))
        shedder = self._shedder(band, now)
        if waiting:
            shedder.occupied(now, waiting)
        else:
            shedder.emptied(now, 0)

    def sent(self, band: int, cost: float, now: float) -> None:
        """One of the line was sent to an engine."""
        self._line(band).drain.done(cost, now)

    def wait_s(self, ticket: Ticket, replicas: int) -> float | None:
        """Seconds that a newcomer will probably wait; None: nobody of the band ever waited."""
        found = self._lines.get(ticket.band)
        if found is None:
            return None
        queue = self._queue.line(ticket.priority, ticket.band).queue
        ahead = queue.cost_ahead(ticket.tenant, ticket.priority, ticket.deadline_at, ticket.weight)
        if found.drain.rate() is None:
            # Work is in seconds of an engine: all its time is the most that it gives.
            return ahead / replicas
        return found.drain.wait_s(ahead)

    def most_wait_s(self, band: int, now: float) -> float:
        """How long a newcomer may be going to wait."""
        return self._shedder(band, now).most_wait_s(now, excused=not self._model.known)

    def sheds(self, band: int, head: Waiting[Ticket], now: float) -> bool:
        """Whether the head of the line, which would be sent now, is shed instead."""
        return self._shedder(band, now).sheds(now - head.queued_at, now, self._queue.waiting(band))

    def again_s(self, band: int) -> float:
        """So long a line whose first one found no room need not be tried again."""
        return min(MAX_AGAIN_S, AGAIN_SHARE * self._line(band).alone_s)

    def _line(self, band: int) -> _Line:
        found = self._lines.get(band)
        if found is None:
            found = self._lines[band] = _Line()
        return found

    def _shedder(self, band: int, now: float) -> DelayShedder:
        line = self._line(band)
        old = now - line.made_at > RENEWED_S and not self._queue.waiting(band)
        if line.shedder is None or old:
            line.made_at, line.shedder = now, DelayShedder(self._bounds(line, band))
        return line.shedder

    def _bounds(self, line: _Line, band: int) -> ShedSettings:
        found, shed = self._bands.get(band), self._settings
        if found is None or not self._model.known:
            return shed
        line.alone_s = alone_s = self._model.alone_s(*found.urgent)
        slack_s = max(0.0, found.usual[2] - alone_s)
        return ShedSettings(
            target_s=max(shed.target_s, min(STANDING * slack_s, MAX_STANDING * alone_s)),
            interval_s=max(shed.interval_s, alone_s),
            max_wait_s=max(shed.max_wait_s, min(BURST * slack_s, MAX_BURST * alone_s)),
        )
