"""Sends requests and books how they ended: what open and closed loop have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from forebay.kernel.clock import Clock
from forebay.lab.bench.exchange import Exchange
from forebay.lab.bench.health import Health
from forebay.lab.bench.live import Live
from forebay.lab.bench.options import BenchOptions
from forebay.lab.bench.payload import PayloadWriter
from forebay.lab.bench.pool import Pool
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import Recorder
from forebay.lab.measure.result import DISCONNECTED, NOT_SENT, OK
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.sessions import Transcripts

Ended = Callable[[PlannedRequest, float], None]
"""Called after a request ended, with its end in seconds from the run's start."""


class Books(msgspec.Struct, frozen=True):
    """Where ends and sends are noted."""

    recorder: Recorder
    health: Health
    live: Live


class Desk:
    """Turns planned requests into exchanges, within the generator's bounds."""

    def __init__(
        self, options: BenchOptions, pool: Pool, writer: PayloadWriter, books: Books, clock: Clock
    ) -> None:
        self._options = options
        self._pool = pool
        self._writer = writer
        self._books = books
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transcripts = Transcripts()
        self._max_in_flight = options.bounds.max_in_flight
        self.in_flight = 0
        self.origin = clock.now()
        self.ended: Ended = _nobody

    def now_s(self) -> float:
        """Seconds from the run's start."""
        return self._clock.now() - self.origin

    def prepare(self, planned: PlannedRequest) -> bytes:
        """The bytes of a request; of a later turn only when the answers before it are there."""
        opening = self._options.workload.materialise(planned, self._options.seed)
        messages: Sequence[dict[str, str]] = self._transcripts.messages(planned, opening)
        return self._writer.write(planned, list(messages))

    def send(self, planned: PlannedRequest, at_s: float, payload: bytes | None = None) -> None:
        """Send now what was meant to start at ``at_s``; never waits."""
        if self.in_flight >= self._max_in_flight:
            self._not_sent(planned, at_s)
            return
        at = self.origin + at_s
        if payload is None:
            payload = self.prepare(planned)
        exchange = Exchange(planned, at, payload, self._settled)
        self.in_flight += 1
        now = self._clock.now()
        self._books.health.sent(now - at, self.in_flight)
        self._books.live.sent()
        exchange.timer = self._loop.call_later(
            at + self._patience_s(planned) - now, self._pool.time_out, exchange
        )
        self._pool.submit(exchange)

    def _patience_s(self, planned: PlannedRequest) -> float:
        target = self._options.target
        if planned.deadline_s is None:
            return target.timeout_s
        return planned.deadline_s + target.deadline_grace_s

    def _not_sent(self, planned: PlannedRequest, at_s: float) -> None:
        self._books.health.not_sent += 1
        now_s = self.now_s()
        self._book(
            Finished(
                at_s=at_s,
                kind=planned.kind,
                status=NOT_SENT,
                finished_at_s=now_s,
                tenant=planned.tenant,
                deadline_s=planned.deadline_s,
            )
        )
        self._transcripts.answered(planned, "")
        self._loop.call_soon(self.ended, planned, now_s)

    def _settled(self, exchange: Exchange, status: str, now: float) -> None:
        self.in_flight -= 1
        planned, facts, origin = exchange.planned, exchange.facts, self.origin
        chunks = facts.chunks > 0 or facts.first >= 0
        answered = status in (OK, DISCONNECTED) or chunks
        now_s = now - origin
        self._book(
            Finished(
                at_s=exchange.at - origin,
                kind=planned.kind,
                status=status,
                finished_at_s=now_s,
                first_at_s=facts.first - origin if chunks else None,
                last_at_s=facts.last - origin if chunks else None,
                tenant=planned.tenant,
                deadline_s=planned.deadline_s,
                input_tokens=facts.input_tokens
                if facts.input_tokens >= 0
                else (planned.input_tokens if answered else 0),
                output_tokens=facts.output_tokens if facts.output_tokens >= 0 else facts.chunks,
                gaps_s=facts.gaps,
                code=exchange.code,
                cache=facts.cache,
                rung=facts.rung,
            )
        )
        if facts.message:
            self._books.recorder.note(status, facts.message)
        self._transcripts.answered(planned, "".join(facts.text))
        # Later, so that the connection of this answer is free again for what follows it.
        self._loop.call_soon(self.ended, planned, now_s)

    def _book(self, finished: Finished) -> None:
        self._books.recorder.record(finished)
        self._books.live.finished(finished)


def _nobody(planned: PlannedRequest, at_s: float) -> None:
    """Nobody waits for ends yet."""
