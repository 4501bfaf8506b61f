"""One replica in real time: the engine is moved at the ends of its steps, waiting requests wake.

The loop's timers tick in milliseconds, so a step's tokens leave up to one late; the engine itself
keeps exact time, and a late look finds everything that happened since in its right order. All
streams that have something to write are woken in one pass.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from typing import Literal

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.errors import Overloaded
from forebay.lab.sim.engine import Engine, EngineConfig, Sequence, State
from forebay.lab.sim.serving.answers import Answer
from forebay.lab.sim.serving.clock import EngineTime
from forebay.lab.sim.serving.faults import AnyFault, Faults, Refuse
from forebay.lab.sim.serving.figures import Figures, Scraped
from forebay.lab.sim.serving.prompts import Prompt
from forebay.lab.sim.steps import StepModel

_NEVER = math.inf


class Coalescing(msgspec.Struct, frozen=True):
    """When a stream's tokens leave: ``tokens_per_write`` together, or every ``every_s``."""

    tokens_per_write: int = 1
    every_s: float = 0.0


class ReplicaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is made with."""

    index: int
    config: EngineConfig
    model: str = "sim"
    speed: float = 1.0
    coalescing: Coalescing = Coalescing()
    max_waiting: int = 10_000
    seed: int = 1


class Job:
    """A request inside a replica; ``ready`` of its tokens may be written, all when ``finished``."""

    __slots__ = (
        "_replica",
        "_waiter",
        "answer",
        "began_at",
        "finished",
        "looked_at",
        "looked_tokens",
        "ready",
        "sequence",
        "streamed",
        "taken",
    )

    def __init__(self, replica: Replica, sequence: Sequence, answer: Answer, began_at: float):
        self._replica = replica
        self._waiter: asyncio.Future[None] | None = None
        self.sequence = sequence
        self.answer = answer
        self.streamed = False
        self.began_at = began_at
        self.ready = 0
        self.taken = 0
        self.finished = False
        self.looked_at = 0.0  # when tokens were last made ready, and how many were by then
        self.looked_tokens = 0

    async def more(self) -> tuple[int, int]:
        """Wait until there is something to write; the tokens as a range.

        The caller gives up waiting by being cancelled, and ends with ``close`` in any case.
        """
        while self.ready == self.taken and not self.finished:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        first, self.taken = self.taken, self.ready
        return first, self.taken

    async def whole(self) -> None:
        """Wait until the last token is written."""
        while not self.finished:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def wake(self) -> None:
        """Let whoever waits look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def close(self, reason: Literal["abort", "error"] = "abort") -> None:
        """Free what the request still holds; nothing when it has finished."""
        if not self.finished:
            self._replica.drop(self, reason)


class Replica:
    """An engine, its faults and its figures; made inside a running loop, ended by ``close``."""

    def __init__(self, options: ReplicaOptions, steps: StepModel, clock: Clock) -> None:
        self.options = options
        self.engine = Engine(options.config, steps)
        self.figures = Figures(options.config.max_model_len)
        # Chance decides which request meets a fault: no secret.
        self.faults = Faults(random.Random(f"{options.seed}/{options.index}"))  # noqa: S311
        self.outstanding_tokens = 0
        """Of prompts and answers under way: what the shared port balances."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._time = EngineTime(clock.now(), options.speed)
        self._ids = itertools.count()
        self._streams: dict[Job, None] = {}
        self._jobs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._fault_timer: asyncio.TimerHandle | None = None
        self._moving = asyncio.Event()
        self._moving.set()
        self._refusing: Refuse | None = None
        self._watcher: asyncio.Event = asyncio.Event()

    # --- requests -----------------------------------------------------------------------------

    def submit(self, prompt: Prompt, answer: Answer, priority: int, *, streamed: bool) -> Job:
        """Hand a request to the engine.

        ``RequestTooLong`` when it can never fit, ``Overloaded`` when too many wait.
        """
        now = self._clock.now()
        at = self._catch_up(now)
        if self._jobs >= self.options.max_waiting + self.options.config.max_num_seqs:
            raise Overloaded("The engine's waiting line is full; try again shortly.")
        sequence = Sequence(
            next(self._ids), prompt.tokens, answer.tokens, prompt.block_hashes, priority=priority
        )
        self.engine.submit(sequence, at)
        job = Job(self, sequence, answer, now)
        job.streamed = streamed
        sequence.tag = job
        self._jobs += 1
        self.outstanding_tokens += prompt.tokens + answer.tokens
        self._arm(now)
        return job

    def drop(self, job: Job, reason: Literal["abort", "error"]) -> None:
        """Cancel a request whose client has left: its blocks are free from now on."""
        now = self._clock.now()
        at = self._catch_up(now)
        if job.finished:
            return
        self.engine.cancel(job.sequence, at)
        job.finished = True
        self._forget(job)
        self.figures.finished[reason] += 1
        self._arm(now)

    @property
    def under_way(self) -> int:
        """Requests inside the engine."""
        return self._jobs

    def scraped(self) -> Scraped:
        """Figures at the present time."""
        self._turn()
        options = self.options
        statistics = self.engine.statistics()
        return Scraped(options.model, options.index, options.config, self.figures, statistics)

    def close(self) -> None:
        """Stop the timers; requests still under way never end."""
        for timer in (self._timer, self._fault_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._fault_timer = None

    # --- faults -------------------------------------------------------------------------------

    def put_fault(self, fault: AnyFault) -> None:
        """Let a fault be in force from now on."""
        self.faults.put(fault, self._clock.now())
        self._faults_changed()

    def clear_faults(self, kind: str | None = None) -> None:
        """End one kind of fault, or all; ``ConfigError`` for a kind that does not exist."""
        self.faults.clear(kind)
        self._faults_changed()

    def faults_in_force(self) -> list[tuple[AnyFault, float | None]]:
        """Every fault with the seconds it has left, None without an end."""
        return self.faults.in_force(self._clock.now())

    async def until_moving(self) -> None:
        """Wait for the end of a stall."""
        await self._moving.wait()

    async def refusal_changed(self) -> Refuse | None:
        """Wait until connections are to be refused, or no longer; how they are."""
        await self._watcher.wait()
        self._watcher.clear()
        return self.faults.refusing

    def _faults_changed(self) -> None:
        now = self._clock.now()
        soonest = self.faults.expire(now)
        if self._fault_timer is not None:
            self._fault_timer.cancel()
            self._fault_timer = None
        if soonest is not None:
            self._fault_timer = self._loop.call_later(
                _whole_ms(soonest - now), self._faults_changed
            )
        if self.faults.stalled:
            self._moving.clear()
        else:
            self._moving.set()
        self._look(now, self._time.at(now))
        self._time.change(now, self.options.speed / self.faults.slowness)
        self._timer_at = _NEVER
        self._arm(now)
        if self.faults.refusing != self._refusing:
            self._refusing = self.faults.refusing
            self._watcher.set()

    # --- time ---------------------------------------------------------------------------------

    def _catch_up(self, now: float) -> float:
        """Engine time; whatever was due before it is told first, so that nothing waits unseen."""
        at = self._time.at(now)
        due = self.engine.next_event_at()
        if due is not None and due <= at:
            self._look(now, at)
        return at

    def _turn(self) -> None:
        now = self._clock.now()
        self._look(now, self._time.at(now))
        self._arm(now)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = _NEVER
        self._turn()

    def _look(self, now: float, at: float) -> None:
        """Move the engine to ``at`` and wake those for whom something happened."""
        progress = self.engine.advance(at)
        for sequence in progress.first_tokens:
            job = sequence.tag
            assert isinstance(job, Job)
            self._begun(job, now)
        for sequence in progress.finished:
            job = sequence.tag
            assert isinstance(job, Job)
            self._finished(job, now)
        if self._streams:
            self._pass(now)

    def _begun(self, job: Job, now: float) -> None:
        sequence = job.sequence
        assert sequence.first_token_at is not None
        tokens = max(1, self.engine.produced(sequence))
        if tokens > 1:  # a late look
            first_at = self._time.real(sequence.first_token_at)
            self.figures.inter_token.observe((now - first_at) / (tokens - 1), tokens - 1)
        job.looked_at = now
        job.ready = job.looked_tokens = tokens
        if job.streamed:
            self._streams[job] = None
            job.wake()

    def _pass(self, now: float) -> None:
        """Make the tokens written since the last look ready, where they are enough."""
        steps = self.engine.decoded_steps()
        coalescing = self.options.coalescing
        least, every_s = coalescing.tokens_per_write, coalescing.every_s
        observe = self.figures.inter_token.observe
        decoding = State.DECODING
        for job in self._streams:
            sequence = job.sequence
            tokens = sequence.written_tokens
            if sequence.state is decoding:
                tokens += steps - sequence.joined_step
            new = tokens - job.ready
            if new >= least and now - job.looked_at >= every_s:
                observe((now - job.looked_at) / new, new)
                job.looked_at = now
                job.ready = job.looked_tokens = tokens
                job.wake()

    def _finished(self, job: Job, now: float) -> None:
        sequence = job.sequence
        tokens = sequence.output_tokens
        new = tokens - job.looked_tokens
        if new > 0:
            self.figures.inter_token.observe((now - job.looked_at) / new, new)
        job.ready = tokens
        job.finished = True
        self._forget(job)
        self._count(job)
        job.wake()

    def _forget(self, job: Job) -> None:
        self._streams.pop(job, None)
        self._jobs -= 1
        sequence = job.sequence
        self.outstanding_tokens -= sequence.input_tokens + sequence.output_tokens

    def _count(self, job: Job) -> None:
        sequence, figures, real = job.sequence, self.figures, self._time.real
        assert sequence.first_token_at is not None and sequence.finished_at is not None
        assert sequence.admitted_at is not None
        began, admitted = job.began_at, real(sequence.admitted_at)
        first, ended = real(sequence.first_token_at), real(sequence.finished_at)
        tokens = sequence.output_tokens
        figures.finished[job.answer.reason] += 1
        figures.prompt_tokens.observe(sequence.input_tokens)
        figures.generation_tokens.observe(tokens)
        figures.first_token.observe(first - began)
        figures.whole.observe(ended - began)
        figures.queue.observe(admitted - began)
        figures.prefill.observe(first - admitted)
        figures.decode.observe(ended - first)
        figures.inference.observe(ended - admitted)
        if tokens > 1:
            figures.per_token.observe((ended - first) / (tokens - 1))

    def _arm(self, now: float) -> None:
        """Wake at the next end of a step that somebody waits for."""
        due = self.engine.next_step_at() if self._streams else self.engine.next_event_at()
        if due is None:
            return
        due = self._time.real(due)
        if due >= self._timer_at:
            return  # an early look costs less than a new timer
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(_whole_ms(due - now), self._on_timer)


def _whole_ms(seconds: float) -> float:
    """Rounded up to what the loop's timers can tell apart, so that none comes too early."""
    return max(1, math.ceil(seconds * 1e3)) / 1e3
