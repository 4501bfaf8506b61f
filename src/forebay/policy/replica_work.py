"""What is under way in one engine, as far as its gateway can tell."""

from __future__ import annotations

from forebay.policy.engine_model import EngineModel
from forebay.policy.ticket import Ticket


class Flight:
    """One request on a replica."""

    __slots__ = ("ahead", "ahead_squares", "at", "band", "begun", "context", "input", "output",
                 "seen", "seen_at", "snap", "whole_at")  # fmt: skip

    def __init__(self, ticket: Ticket, output: int, now: float) -> None:
        self.band = ticket.band
        self.input = ticket.input_tokens
        self.output = max(1, output)
        self.context = self.input + self.output / 2
        self.begun = False
        self.at = now  # it went to the engine
        self.ahead = self.ahead_squares = 0.0  # prompts before its first token, its own included
        self.seen = 0  # tokens it had written at ``seen_at``
        self.seen_at = now
        self.snap = (0.0, 0.0, 0.0, 0.0)  # the replica's sums then


class ReplicaWork:
    """Flights of one replica and running sums over time."""

    __slots__ = ("_at", "_context_s", "_sequence_s", "context", "decoding", "flights", "pending",
                 "pending_squares", "prefilled", "squares")  # fmt: skip

    def __init__(self) -> None:
        self.flights: dict[Ticket, Flight] = {}
        self.decoding = 0
        self.context = 0.0
        self.pending = self.pending_squares = 0.0  # prompts without a first token
        self.prefilled = self.squares = 0.0
        self._at = self._sequence_s = self._context_s = 0.0

    def _pass(self, now: float) -> None:
        passed_s = now - self._at
        self._at = now
        self._sequence_s += passed_s * self.decoding
        self._context_s += passed_s * self.context

    def _snap(self) -> tuple[float, float, float, float]:
        return self._sequence_s, self._context_s, self.prefilled, self.squares

    def sent(self, ticket: Ticket, output: int, now: float) -> None:
        """It has a place there."""
        flight = self.flights[ticket] = Flight(ticket, output, now)
        self._pass(now)
        self._queue(flight)
        flight.snap = self._snap()

    def _queue(self, flight: Flight) -> None:
        self.pending += flight.input
        self.pending_squares += flight.input * flight.input
        flight.ahead, flight.ahead_squares = self.pending, self.pending_squares

    def _unqueue(self, flight: Flight) -> None:
        self.pending = max(0.0, self.pending - flight.input)
        self.pending_squares = max(0.0, self.pending_squares - flight.input * flight.input)

    def corrected(self, ticket: Ticket) -> None:
        """Its prompt is another one than was planned."""
        flight = self.flights.get(ticket)
        if flight is None or flight.begun:
            return
        self._unqueue(flight)
        flight.input = ticket.input_tokens
        flight.context = flight.input + flight.output / 2
        self._queue(flight)

    def asked(self, ticket: Ticket, now: float) -> None:
        """It goes to the engine only now."""
        flight = self.flights.get(ticket)
        if flight is None or flight.begun:
            return
        self._unqueue(flight)
        self._pass(now)
        self._queue(flight)
        flight.at = flight.seen_at = now
        flight.snap = self._snap()

    def began(self, ticket: Ticket, now: float, model: EngineModel) -> None:
        """Its first token came."""
        flight = self.flights.get(ticket)
        if flight is None or flight.begun:
            return
        self._pass(now)
        took_s = now - flight.at
        if took_s > 0:
            sequences = (self._sequence_s - flight.snap[0]) / took_s
            context = (self._context_s - flight.snap[1]) / took_s
        else:
            sequences, context = float(self.decoding), self.context
        model.began(
            took_s,
            sequences=sequences,
            context=context,
            prefilled=flight.ahead,
            squares=flight.ahead_squares,
        )
        self._unqueue(flight)
        self.prefilled += flight.input
        self.squares += flight.input * flight.input
        flight.begun = True
        self.decoding += 1
        self.context += flight.context
        flight.seen, flight.seen_at, flight.snap = 1, now, self._snap()

    def wrote(self, ticket: Ticket, tokens: int, now: float, model: EngineModel) -> None:
        """It has so many tokens by now."""
        flight = self.flights.get(ticket)
        if flight is None or not flight.begun:
            return
        self._pass(now)
        written, took_s = tokens - flight.seen, now - flight.seen_at
        if written <= 0 or took_s <= 0:
            return
        snap = self._snap()
        model.wrote(
            written,
            took_s,
            sequences=(snap[0] - flight.snap[0]) / took_s,
            context=(snap[1] - flight.snap[1]) / took_s,
            prefilled=snap[2] - flight.snap[2],
            squares=snap[3] - flight.snap[3],
        )
        flight.seen, flight.seen_at, flight.snap = tokens, now, snap

    def ended(self, ticket: Ticket, now: float) -> None:
        """It is there no longer."""
        flight = self.flights.pop(ticket, None)
        if flight is None:
            return
        self._pass(now)
        if flight.begun:
            self.decoding -= 1
            self.context = max(0.0, self.context - flight.context) if self.decoding else 0.0
        else:
            self._unqueue(flight)
        if not self.flights:
            self.pending = self.pending_squares = self.context = 0.0

    def pending_s(self, model: EngineModel) -> float:
        """Seconds of prompts that wait in it."""
        return model.prefill_s * self.pending + model.square_s * self.pending_squares
