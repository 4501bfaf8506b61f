"""Whether an engine can take one more request without harm, by the learned step times.

A schedulability test: with it on board, would those at work and the smaller ones that usually come
still end in time, find a place and find memory? Times follow from processor sharing: what is
written takes the present step over the share of time that prompts leave.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

from forebay.policy.bands import ONE_SIZE, Bands, Usual
from forebay.policy.engine_model import EngineModel
from forebay.policy.lateness import Lateness
from forebay.policy.replica_work import ReplicaWork

AHEAD = (0, 16, 64, 256, 1024, 4096)
"""Written tokens from now on, after which the memory held is looked at."""
TIGHT = 12
"""Requests at work that are looked at closely: those nearest to their deadlines."""
REFRESH_S = 0.02
"""So long a look at all that are at work is good for."""
SPARE_SHARE = 0.5
"""Share of the slack of smaller ones in which ends of others are counted as room for them."""
OWN_SHARE = 0.95
"""Of its time, in which a request must probably end to be let in."""
FEW_LARGER = 0.05
"""Share of the tokens at work up to which larger ones are not what the others wait for."""
UNKNOWN_LENGTH = 2.0
"""Times the longest prompt measured, over which nothing is known of a prompt."""
ALONE_SHARE = 0.1
"""Of such a prompt's tokens, that may wait to be read beside it."""
MIN_SPEED = 0.1
MIN_STEP_S = 1e-6


class Wanted(NamedTuple):
    """A request that wants in; ``safe``: it is protected from larger ones."""

    band: int
    input: int
    output: int
    deadline_at: float
    safe: bool


class Bounds(NamedTuple):
    """Places and tokens of one engine that may be taken."""

    places: float
    tokens: float


class _Tight(NamedTuple):
    """One at work, by when it must go on at the present speed; ``rest``: tokens to be written."""

    at: float
    deadline_at: float
    rest: float
    band: int
    allowed_s: float


class EngineRoom:
    """Tests for one replica, with what was seen of all at work a moment ago."""

    def __init__(
        self, model: EngineModel, bands: Bands, lateness: Lateness, work: ReplicaWork
    ) -> None:
        self._model = model
        self._bands = bands
        self._lateness = lateness
        self._work = work
        self._looked_at = -math.inf
        self._tight: list[_Tight] = []
        self._rests: list[float] = []
        self._ahead = [0.0] * len(AHEAD)

    def sent(self, input_tokens: int, output_tokens: int) -> None:
        """One more is there."""
        for place, tokens in enumerate(AHEAD):
            if tokens <= output_tokens:
                self._ahead[place] += input_tokens + tokens

    def takes_s(self, wanted: Wanted, now: float) -> float:
        """Seconds that a request takes here as the model says.

        Of one that is protected without what comes later: that is let in only as it allows.
        """
        model, work = self._model, self._work
        context = work.context + wanted.input + wanted.output / 2
        takes_s = work.pending_s(now) + model.prompt_s(wanted.input, work.step_s)
        written_s = wanted.output * model.step_s(work.decoding + 1, context)
        speed = self._speed(self._bands.smaller(wanted.band), now)
        if wanted.safe:
            return takes_s * self._speed([], now) + written_s
        # Prompts that come later are read after its own, and slow only what it writes.
        return takes_s + written_s / speed

    def holds(self, wanted: Wanted, now: float, tokens: float) -> bool:
        """Whether the memory lasts, at every moment ahead, for what is there and for it."""
        if math.isinf(tokens):
            return True
        self._look(now)
        return all(
            held + wanted.input + ahead <= tokens
            for ahead, held in zip(AHEAD, self._ahead, strict=True)
            if ahead <= wanted.output
        )

    def harmless(self, wanted: Wanted, now: float, bounds: Bounds) -> bool:
        """Whether it takes nothing that smaller ones need, and makes nobody late."""
        model, work = self._model, self._work
        smaller = self._bands.smaller(wanted.band)
        if smaller and not self._leaves(wanted, now, smaller, bounds):
            return False
        if wanted.safe and not smaller:
            return True
        if wanted.input > UNKNOWN_LENGTH * model.longest:
            # One at a time shows it.
            return work.pending <= ALONE_SHARE * wanted.input
        step_s = model.step_s(work.decoding + 1, work.context + wanted.input + wanted.output / 2)
        prompt_s = work.pending_s(now) + model.prompt_s(wanted.input, work.step_s)
        speed = self._speed(smaller, now)
        for one in smaller:
            own_s = model.prompt_s(one.urgent_input, step_s) + one.urgent_output * step_s
            if (prompt_s + own_s) / speed > self._lateness.margin * one.allowed_s:
                return False
        if not wanted.safe:
            own_s = (prompt_s + wanted.output * step_s) * self._stretch(wanted.band) / speed
            allowed = max(OWN_SHARE, self._lateness.ease)
            if own_s > allowed * (wanted.deadline_at - now):
                return False
        self._look(now)
        for flight in self._tight:
            smaller_one = flight.band <= wanted.band - ONE_SIZE
            if wanted.safe and not smaller_one:
                continue
            share = self._lateness.margin if smaller_one else self._lateness.ease
            left_s = flight.deadline_at - now - (1 - share) * flight.allowed_s
            needs_s = (prompt_s + flight.rest * step_s) * self._stretch(flight.band)
            # Who is late anyway is no reason to keep others out.
            if needs_s > left_s * speed and flight.rest * step_s < left_s:
                return False
        return True

    def _stretch(self, band: int) -> float:
        return self._lateness.stretch(band, len(self._work.flights))

    def _speed(self, smaller: list[Usual], now: float) -> float:
        """Share of the time that prompts leave: of the smaller as they come, of others as sent."""
        busy = sum(one.reads_s for one in smaller)
        busy += self._work.flow(now, smaller[-1].band if smaller else -1)
        return max(MIN_SPEED, 1 - busy)

    def _leaves(self, wanted: Wanted, now: float, smaller: list[Usual], bounds: Bounds) -> bool:
        """Whether places and memory are left for the smaller ones that come before others end.

        Little's law, nested: for each band with all under it, the mean number at work and two
        standard deviations, less those there and those that end within the slack of the band.
        """
        self._look(now)
        work = self._work
        step_s = max(MIN_STEP_S, work.step_s)
        usual = held = spare = memory = 0.0
        there, counts = 0, sorted(work.counts.items(), reverse=True)
        for one in smaller:
            while counts and counts[-1][0] <= one.band:
                there += counts.pop()[1]
            usual += one.at_work
            held += one.at_work * (one.input + one.output / 2)
            own_s = self._model.prompt_s(one.urgent_input, step_s) + one.urgent_output * step_s
            patient_s = SPARE_SHARE * max(0.0, one.allowed_s - own_s)
            ends = bisect_right(self._rests, patient_s / step_s)
            more = usual + 2 * math.sqrt(usual) + 1 - there - ends
            spare = max(spare, more)
            if usual:
                memory = max(memory, more * held / usual)
        if len(work.flights) + 1 + spare > bounds.places:
            return False
        return self.holds(wanted, now, bounds.tokens - memory)

    def _look(self, now: float) -> None:
        """Look at all at work: who is nearest to a deadline, how much is left, memory ahead."""
        if now - self._looked_at < REFRESH_S:
            return
        step_s = max(MIN_STEP_S, self._work.step_s)
        rows, ahead = [], [0.0] * len(AHEAD)
        for ticket, flight in self._work.flights.items():
            rest = float(flight.output)
            if flight.begun:
                rest = max(1.0, rest - flight.seen - (now - flight.seen_at) / step_s)
            there = flight.input + flight.output - rest
            for place, tokens in enumerate(AHEAD):
                if tokens > rest:
                    break
                ahead[place] += there + tokens
            allowed_s = ticket.deadline_at - ticket.sent_at
            tight_at = ticket.deadline_at - rest * step_s
            rows.append(_Tight(tight_at, ticket.deadline_at, rest, flight.band, allowed_s))
        rows.sort()
        self._rests = sorted(one.rest for one in rows)
        self._tight, self._ahead, self._looked_at = rows[:TIGHT], ahead, now
