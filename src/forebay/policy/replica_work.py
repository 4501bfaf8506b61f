"""What is under way in one engine, as far as its gateway can tell."""

from __future__ import annotations

import math

from forebay.policy.bands import ONE_SIZE
from forebay.policy.engine_model import EngineModel
from forebay.policy.ticket import Ticket

SEATS = 256.0
"""What vLLM and SGLang take by default."""
FIRST_GROWTH, PAUSE_S, MAX_PAUSE_S = 4.0, 2.0, 60.0
FLOW_S = 2.0
LATE_FACTOR, LATE_S = 3.0, 0.3
"""A first token that comes later than this says that the request waited for a seat."""
FEW_TOKENS = 6
"""Written tokens, under which an interval tells too little of a step."""
CLEAR = 0.1
"""Share of its own prompt under which what was before it does not count."""
NEAR_PEAK = 0.9
"""Of the most that wrote at once of late: the rest are prompts that are being read."""
MIN_KV_USE, NEW_KV = 0.3, 0.3
"""Share of memory in use from which it tells of the whole, and the weight of a new look."""
PEAK_S = 5.0
"""The most that wrote at once within this are what a full engine takes."""


class Flight:
    """One request on a replica."""

    __slots__ = (
        "at",
        "band",
        "before",
        "begun",
        "context",
        "due_s",
        "input",
        "output",
        "planned_s",
        "seen",
        "seen_at",
        "snap",
    )

    def __init__(self, band: int, input_tokens: int, output_tokens: int, now: float) -> None:
        self.band = band
        self.input = input_tokens
        self.output = max(1, output_tokens)
        self.context = self.input + self.output / 2
        self.begun = False
        self.at = now  # it went to the engine
        self.before = 0.0  # prompts that others had still to read then
        self.due_s = 0.0  # in which its first token was expected
        self.planned_s = 0.0  # in which it was expected to end
        self.seen = 0  # tokens it had written at ``seen_at``
        self.seen_at = now
        self.snap = (0.0, 0.0, 0.0)  # the replica's sums then


class ReplicaWork:
    """Flights of one replica, and sums over time of who writes, what they hold, what is read."""

    __slots__ = (
        "_at",
        "_context_s",
        "_flows",
        "_flows_at",
        "_grown_at",
        "_growth",
        "_mark",
        "_pause_s",
        "_peak_at",
        "_peaks",
        "_read",
        "_read_at",
        "_sequence_s",
        "_shrunk_at",
        "context",
        "counts",
        "decoding",
        "flights",
        "kv_tokens",
        "model",
        "pending",
        "seats",
        "shown",
        "tokens",
        "unread",
    )

    def __init__(self, model: EngineModel) -> None:
        self.model = model
        self.flights: dict[Ticket, Flight] = {}
        self.unread: dict[Ticket, Flight] = {}  # without a first token, in the engine's order
        self.counts: dict[int, int] = {}  # flights and their tokens by band
        self.tokens: dict[int, float] = {}
        self.decoding = 0
        self.context = 0.0
        self.pending = 0.0  # tokens of the unread
        self._read = 0.0  # tokens of those read
        self._read_at = 0.0
        self._at = self._sequence_s = self._context_s = 0.0
        self.kv_tokens = math.inf  # tokens that its memory holds, once it has shown that
        self.shown = False  # it tells how many wait in it
        self.seats = SEATS  # sequences it takes at once, until it shows another number
        self._shrunk_at = self._grown_at = -math.inf
        self._growth, self._pause_s = FIRST_GROWTH, PAUSE_S
        self._mark = (-math.inf, 0)
        self._peaks = [0, 0]  # most that wrote at once in this period and in the one before
        self._peak_at = 0.0
        self._flows: dict[int, float] = {}  # by band, seconds of prompts sent of late
        self._flows_at = 0.0

    def flow(self, now: float, above: int) -> float:
        """Share of the time that prompts sent of late take, those of bands over ``above``."""
        self._fade(now)
        return sum(s for band, s in self._flows.items() if band > above) / FLOW_S

    def _fade(self, now: float) -> None:
        passed_s = now - self._flows_at
        if passed_s > 0.01:
            kept = math.exp(-passed_s / FLOW_S)
            self._flows = {band: kept * s for band, s in self._flows.items() if s > 1e-6}
            self._flows_at = now

    def held(self, larger_than: int | None = None) -> float:
        """Tokens at work; ``larger_than``: of those of another, larger size than that band."""
        if larger_than is None:
            return sum(self.tokens.values())
        least = larger_than + ONE_SIZE
        return sum(tokens for band, tokens in self.tokens.items() if band >= least)

    @property
    def step_s(self) -> float:
        """A step of those that write now, without prompts."""
        return self.model.step_s(self.decoding, self.context)

    def stuck(self, now: float) -> bool:
        """Whether as many write as ever of late, and did a moment ago.

        What waits then waits for one of them to end, and not for a prompt to be read.
        """
        marked_at, marked = self._mark
        if now - marked_at > 0.5:
            self._mark = (now, self.decoding)
        same = abs(self.decoding - marked) <= max(0.5, 0.02 * marked)
        near = self.decoding >= NEAR_PEAK * max(self._peaks)
        return same and near and 0.5 < now - marked_at < 2.5

    def full(self, now: float) -> None:
        """It lets requests wait: those that write at once are what it takes."""
        if now - self._shrunk_at > 1.0:
            self._shrunk_at = now
            self.seats = max(1.0, min(self.seats, max(self._peaks)))
            self._growth = FIRST_GROWTH
            self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s)

    def memory(self, kv_use: float | None) -> None:
        """So much of its KV memory is in use: what it holds says how much there is."""
        if kv_use is None or kv_use < MIN_KV_USE:
            return
        found = self.context / kv_use
        if math.isinf(self.kv_tokens):
            self.kv_tokens = found
        else:
            self.kv_tokens += NEW_KV * (found - self.kv_tokens)

    def free(self, now: float) -> None:
        """Nothing waits in it though its seats are taken: perhaps it has more."""
        if self.decoding < 0.95 * self.seats - 1:
            return
        if now - self._shrunk_at > self._pause_s and now - self._grown_at > 1.0:
            self._grown_at = now
            self.seats += self._growth
            self._growth *= 2

    @property
    def now(self) -> float:
        """When something happened last."""
        return self._at

    def sent(self, ticket: Ticket, output: int, now: float, planned_s: float = 0.0) -> None:
        """It has a place there."""
        flight = Flight(ticket.band, ticket.likely_tokens, output, now)
        flight.planned_s = planned_s
        self.flights[ticket] = flight
        self.counts[flight.band] = self.counts.get(flight.band, 0) + 1
        self.tokens[flight.band] = self.tokens.get(flight.band, 0.0) + flight.context
        flight.due_s = self.pending_s(now) + self.model.first_s
        flight.due_s += self.model.prompt_s(flight.input, self.step_s) + self.model.step_s(
            0, self.context
        )
        self._queue(ticket, flight, now)
        self._fade(now)
        read_s = self.model.read_s(flight.input)
        self._flows[flight.band] = self._flows.get(flight.band, 0.0) + read_s

    def corrected(self, ticket: Ticket) -> None:
        """Its prompt is another one than was planned."""
        flight = self.unread.get(ticket)
        if flight is not None:
            self.pending += ticket.input_tokens - flight.input
            self.tokens[flight.band] += ticket.input_tokens - flight.input
            flight.input = ticket.input_tokens
            flight.context = flight.input + flight.output / 2

    def asked(self, ticket: Ticket, now: float) -> None:
        """It goes to the engine only now."""
        flight = self.unread.get(ticket)
        if flight is not None:
            self._unqueue(ticket, flight)
            self._queue(ticket, flight, now)

    def began(self, ticket: Ticket, now: float) -> None:
        """Its first token came."""
        flight = self.unread.get(ticket)
        if flight is None:
            return
        self._pass(now)
        took_s = now - flight.at
        late = self.model.known and took_s > LATE_FACTOR * flight.due_s + LATE_S
        if late and self.decoding and self.stuck(now):
            self.full(now)
        elif not late and not self.shown:
            self.free(now)
        if took_s > 0 and (not late or self.decoding < 0.9 * self.seats):
            # What waited for a seat says nothing of prompts.
            self.model.began(
                took_s,
                flight.before + flight.input,
                now,
                step_s=self.step_s,
                clear=flight.before <= CLEAR * flight.input,
            )
        self._unqueue(ticket, flight)
        self._read += flight.input
        self._read_at = now
        flight.begun = True
        self.decoding += 1
        if now - self._peak_at > PEAK_S:
            self._peak_at, self._peaks = now, [0, self._peaks[0]]
        self._peaks[0] = max(self._peaks[0], self.decoding)
        self.context += flight.context
        flight.seen, flight.seen_at, flight.snap = 1, now, self._snap(now)

    def wrote(self, ticket: Ticket, tokens: int, now: float) -> None:
        """It has so many tokens by now."""
        flight = self.flights.get(ticket)
        if flight is None or not flight.begun:
            return
        self._pass(now)
        written, took_s = tokens - flight.seen, now - flight.seen_at
        # Looks fall anywhere in a step: over a few tokens the error would be as large as the value.
        # From the first token to the last both ends are those of steps.
        if took_s <= 0 or written < (1 if flight.seen == 1 else FEW_TOKENS):
            return
        snap = self._snap(now)
        self.model.wrote(
            written,
            took_s,
            sequences=(snap[0] - flight.snap[0]) / took_s,
            context=(snap[1] - flight.snap[1]) / took_s,
            prefilled=max(0.0, snap[2] - flight.snap[2]),
            now=now,
        )
        flight.seen, flight.seen_at, flight.snap = tokens, now, snap

    def ended(self, ticket: Ticket, now: float) -> None:
        """It is there no longer."""
        flight = self.flights.pop(ticket, None)
        if flight is None:
            return
        self._pass(now)
        self.counts[flight.band] -= 1
        self.tokens[flight.band] -= flight.context
        if not self.counts[flight.band]:
            del self.counts[flight.band], self.tokens[flight.band]
        if flight.begun:
            self.decoding -= 1
            self.context = max(0.0, self.context - flight.context) if self.decoding else 0.0
        else:
            self._unqueue(ticket, flight)

    def pending_s(self, now: float) -> float:
        """Seconds in which the prompts that wait in it will have been read."""
        if not self.unread:
            return 0.0
        prompt_s = self.model.prompt_s
        step_s = self.step_s
        whole_s = prompt_s(self.pending, step_s)
        head = next(iter(self.unread.values()))
        return max(0.0, whole_s - self._head_share(now) * prompt_s(head.input, step_s))

    def _head_share(self, now: float) -> float:
        """The part of the first unread prompt that is probably read by now."""
        for flight in self.unread.values():
            takes_s = self.model.prompt_s(flight.input, self.step_s)
            since = max(flight.at, self._read_at)
            return min(1.0, max(0.0, now - since) / takes_s) if takes_s > 0 else 0.0
        return 0.0

    def _pass(self, now: float) -> None:
        passed_s = now - self._at
        self._at = now
        self._sequence_s += passed_s * self.decoding
        self._context_s += passed_s * self.context

    def _snap(self, now: float) -> tuple[float, float, float]:
        read = self._read
        for flight in self.unread.values():
            read += self._head_share(now) * flight.input
            break
        return self._sequence_s, self._context_s, read

    def _queue(self, ticket: Ticket, flight: Flight, now: float) -> None:
        flight.before = self.pending
        for head in self.unread.values():
            flight.before -= self._head_share(now) * head.input
            break
        flight.at = flight.seen_at = now
        self.unread[ticket] = flight
        self.pending += flight.input

    def _unqueue(self, ticket: Ticket, flight: Flight) -> None:
        del self.unread[ticket]
        self.pending = self.pending - flight.input if self.unread else 0.0
