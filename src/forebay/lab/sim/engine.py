"""A continuous-batching engine that jumps over runs of decode steps in closed form.

The schedule is vLLM's (V1): each step takes a token for every decoding sequence first, then
prefill chunks up to ``max_num_batched_tokens``, older ones first, then new ones from the waiting
queue. A step ends for all its sequences at once. What differs on purpose: the blocks of a whole
prompt are taken at admission; only blocks with hashes are cached: those of the prompt can be shared
from the end of the step that computed them, those of the answer from its end; blocks that two
sequences computed at the same time become one; free blocks are used before cached ones.

Between two changes of the batch every step is a pure decode step over the same sequences, so time,
tokens and blocks follow from counters. One *segment* is such a run, or one step with prefill. The
counters stand at the segment's end while it is under way; whatever interferes first shortens the
run to the step that is in flight.
"""

from __future__ import annotations

import math

from forebay.lab.sim.blocks import BlockPool, Match
from forebay.lab.sim.config import EngineConfig, RequestTooLong, check_fits
from forebay.lab.sim.decoding import Decoding
from forebay.lab.sim.figures import EngineStatistics, Progress
from forebay.lab.sim.sequence import Sequence, State
from forebay.lab.sim.steps import StepModel
from forebay.lab.sim.waiting import FifoWaiting, PriorityWaiting, in_priority_order

__all__ = [
    "Engine",
    "EngineConfig",
    "EngineStatistics",
    "Progress",
    "RequestTooLong",
    "Sequence",
    "State",
]

_NEVER = math.inf


class Engine:
    """One replica: give it sequences, move it through time, take what happened."""

    __slots__ = (
        "_block",
        "_busy_s",
        "_by_priority",
        "_cancelled",
        "_chunks",
        "_decoding",
        "_end",
        "_finished",
        "_generated",
        "_model",
        "_now",
        "_order",
        "_pool",
        "_preempted",
        "_prefilling",
        "_prefix_hits",
        "_prefix_queries",
        "_progress",
        "_prompted",
        "_running",
        "_start",
        "_start_context",
        "_start_decoding",
        "_steps",
        "_steps_over",
        "_waiting",
        "_watermark_blocks",
        "config",
    )

    def __init__(self, config: EngineConfig, steps: StepModel) -> None:
        self.config = config
        self._model = steps
        self._block = config.block_tokens
        self._by_priority = config.scheduling == "priority"
        self._pool = BlockPool(config.blocks)
        self._watermark_blocks = config.watermark_blocks
        self._waiting: FifoWaiting | PriorityWaiting = (
            PriorityWaiting() if self._by_priority else FifoWaiting()
        )
        self._running: dict[Sequence, None] = {}  # in order of admission
        self._prefilling: list[Sequence] = []
        self._order = 0
        self._now = -_NEVER
        self._decoding = Decoding(self._block)  # as at the end of the segment
        # The segment under way; no steps while idle.
        self._steps = 0
        self._start = 0.0
        self._end = _NEVER
        self._start_decoding = 0
        self._start_context = 0
        self._chunks: list[tuple[Sequence, int]] | None = None
        # Figures.
        self._progress: Progress | None = None
        self._finished = 0
        self._cancelled = 0
        self._preempted = 0
        self._prompted = 0
        self._generated = 0
        self._prefix_hits = 0
        self._prefix_queries = 0
        self._steps_over = 0
        self._busy_s = 0.0

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a new sequence; RequestTooLong when it can never fit."""
        check_fits(self.config, sequence)
        if now >= self._end:
            self._pass(now)
        if now > self._now:
            self._now = now
        self._order += 1
        sequence.order = self._order
        sequence.arrived_at = now
        sequence.state = State.WAITING
        waiting = self._waiting
        blocked = not self._by_priority and len(waiting) > 0
        waiting.push(sequence)
        if not self._steps:
            self._schedule(now)
        elif (
            self._steps > 1
            and not blocked
            and len(self._running) < self.config.max_num_seqs
            and waiting.head() is sequence
        ):
            self._shorten()

    def cancel(self, sequence: Sequence, now: float) -> None:
        """Forget a sequence and free its blocks at once; nothing when it has already ended."""
        if now >= self._end:
            self._pass(now)
        if now > self._now:
            self._now = now
        state = sequence.state
        if state is State.WAITING:
            was_head = self._waiting.head() is sequence
            self._waiting.remove(sequence)
            if was_head and self._steps > 1 and len(self._waiting):
                self._shorten()
        elif state is State.PREFILLING:
            self._prefilling.remove(sequence)
            del self._running[sequence]
            self._free(sequence, sequence.prompt_tokens)
        elif state is State.DECODING:
            if self._steps > 1:
                self._shorten()
            written = self.produced(sequence)
            self._leave_decoding(sequence, whole=False)
            sequence.written_tokens = written
        else:
            return
        sequence.state = State.CANCELLED
        sequence.finished_at = now
        self._cancelled += 1

    def next_event_at(self) -> float | None:
        """When to call ``advance`` next; None while idle. Changes with ``submit``, ``cancel``."""
        return self._end if self._steps else None

    def advance(self, now: float) -> Progress:
        """Move to ``now`` (never backwards) and tell what happened up to and including it."""
        if now >= self._end:
            self._pass(now)
        if now > self._now:
            self._now = now
        progress = self._progress
        if progress is None:
            return Progress()
        self._progress = None
        return progress

    def look(self, now: float) -> None:
        """Let ``produced`` and ``statistics`` speak of ``now`` without ending anything.

        What is due by then stays due, and still counts as not over.
        """
        if now > self._now:
            self._now = min(now, self._end)

    def produced(self, sequence: Sequence) -> int:
        """Output tokens written up to the last ``advance``, ``look``, submit or cancel."""
        if sequence.state is not State.DECODING:
            return sequence.written_tokens
        return sequence.written_tokens + self.decoded_steps() - sequence.joined_step

    def decoded_steps(self) -> int:
        """Steps since the engine's start in which someone could decode.

        A sequence in state DECODING wrote ``written_tokens + decoded_steps() - joined_step``
        tokens: for those who ask about many sequences at a time.
        """
        return self._decoding.step - self._steps + self._steps_done()

    def next_step_at(self) -> float | None:
        """When the step in flight ends, and with it the next tokens come; None while idle."""
        if self._steps <= 1:
            return self.next_event_at()
        return self._start + self._model.run_seconds(
            self._start_decoding, self._start_context, self._steps_done() + 1
        )

    def waiting(self) -> int:
        """Sequences that wait for admission, those sent back by preemption included."""
        return len(self._waiting)

    def statistics(self) -> EngineStatistics:
        """Figures at the time of the last ``advance``, ``look``, submit or cancel."""
        done = self._steps_done()
        pool = self._pool
        step = self._decoding.step
        later = self._decoding.growth(step - self._steps + min(done + 1, self._steps), step)
        pool.settle(later)
        free = pool.free + later
        return EngineStatistics(
            running=len(self._running),
            waiting=len(self._waiting),
            blocks_total=pool.total,
            blocks_used=pool.total - free - pool.cached,
            blocks_cached=pool.cached,
            blocks_free=free,
            preemptions=self._preempted,
            finished=self._finished,
            cancelled=self._cancelled,
            prompt_tokens=self._prompted,
            generation_tokens=self._generated + self._start_decoding * done,
            prefix_query_tokens=self._prefix_queries,
            prefix_hit_tokens=self._prefix_hits,
            steps=self._steps_over + done,
            busy_s=self._busy_s + (max(0.0, self._now - self._start) if self._steps else 0.0),
        )

    # --- time ---------------------------------------------------------------------------------

    def _pass(self, now: float) -> None:
        """End every segment that is over by ``now``, and begin what follows it."""
        while self._end <= now:
            at = self._end
            self._end_segment(at)
            self._schedule(at)

    def _steps_done(self) -> int:
        """Whole steps of the segment that are over at the present time."""
        if self._steps <= 1:
            return 0
        model, start, now = self._model, self._start, self._now
        count, context = self._start_decoding, self._start_context
        done = model.steps_within(count, context, now - start)
        # The inverse may be off by a rounding error; the boundaries are what run_seconds says.
        if start + model.run_seconds(count, context, done + 1) <= now:
            done += 1
        elif done > 0 and start + model.run_seconds(count, context, done) > now:
            done -= 1
        return min(done, self._steps - 1)

    def _shorten(self) -> None:
        """Let the run of decode steps end with the step in flight at the present time."""
        steps = self._steps_done() + 1
        dropped = self._steps - steps
        if dropped:
            decoding = self._decoding
            self._pool.free += decoding.growth(decoding.step - dropped, decoding.step)
            decoding.move(-dropped)
            self._steps = steps
            self._end = self._start + self._model.run_seconds(
                self._start_decoding, self._start_context, steps
            )
        if self._pool.free < 0:
            self._pool.settle()

    def _end_segment(self, at: float) -> None:
        if self._pool.free < 0:
            self._pool.settle()
        self._generated += self._start_decoding * self._steps
        self._steps_over += self._steps
        self._busy_s += at - self._start
        self._steps = 0
        self._end = _NEVER
        for sequence in self._decoding.due():
            self._leave_decoding(sequence)
            self._finish(sequence, at)
        chunks = self._chunks
        if chunks is not None:
            self._chunks = None
            for sequence, tokens in chunks:
                if sequence.state is State.PREFILLING:
                    sequence.computed_tokens += tokens
                    if sequence.node is not None:
                        self._publish(sequence)
                    if sequence.computed_tokens == sequence.prompt_tokens:
                        self._prefilling.remove(sequence)
                        self._join_decoding(sequence, at)

    # --- the life of a sequence ---------------------------------------------------------------

    def _happened(self) -> Progress:
        if self._progress is None:
            self._progress = Progress()
        return self._progress

    def _join_decoding(self, sequence: Sequence, at: float) -> None:
        """The prefill ended at ``at`` and gave one token."""
        sequence.written_tokens += 1
        self._generated += 1
        if sequence.first_token_at is None:
            sequence.first_token_at = at
            self._prompted += sequence.input_tokens
            self._happened().first_tokens.append(sequence)
        left = sequence.output_tokens - sequence.written_tokens
        if not left:
            del self._running[sequence]
            self._free(sequence, sequence.prompt_tokens)
            self._finish(sequence, at)
            return
        sequence.state = State.DECODING
        self._decoding.join(sequence, left)

    def _leave_decoding(self, sequence: Sequence, *, whole: bool = True) -> None:
        """Count it out and free its blocks, as at the end of the segment."""
        context = self._decoding.leave(sequence)
        if whole and sequence.node is not None:
            sequence.computed_tokens = context
            self._publish(sequence)
        del self._running[sequence]
        self._free(sequence, context)

    def _finish(self, sequence: Sequence, at: float) -> None:
        sequence.written_tokens = sequence.output_tokens
        sequence.state = State.FINISHED
        sequence.finished_at = at
        self._finished += 1
        self._happened().finished.append(sequence)

    def _free(self, sequence: Sequence, context: int) -> None:
        self._pool.free += -(-context // self._block) - sequence.shared_blocks
        if sequence.node is not None:
            self._pool.release(sequence.node)
            sequence.node = None
            sequence.shared_blocks = 0

    def _publish(self, sequence: Sequence) -> None:
        """Let others share the hashed blocks that are computed by now."""
        node = sequence.node
        assert node is not None
        done = sequence.shared_blocks // node.size
        tokens = sequence.hash_tokens or self._block
        ready = sequence.block_hashes[done : sequence.computed_tokens // tokens]
        if ready:
            sequence.node = self._pool.publish(node, ready)
            sequence.shared_blocks += len(ready) * node.size

    # --- scheduling ---------------------------------------------------------------------------

    def _schedule(self, at: float) -> None:
        """Begin the next segment at ``at``, or fall idle."""
        pool, decoding = self._pool, self._decoding
        preempted = False
        if decoding.count:
            growth = decoding.growth_now()
            if growth > pool.free + pool.cached:
                growth = self._preempt()
                preempted = True
            pool.free -= growth
            if pool.free < 0:
                pool.settle()
        chunks: list[tuple[Sequence, int]] = []
        budget = self.config.max_num_batched_tokens - decoding.count
        for sequence in self._prefilling:
            if budget > 0:
                tokens = min(budget, sequence.prompt_tokens - sequence.computed_tokens)
                budget -= tokens
                chunks.append((sequence, tokens))
        if len(self._waiting) and budget > 0 and not preempted:
            self._admit(chunks, budget, at)
        self._start = at
        self._start_decoding = decoding.count
        self._start_context = decoding.context
        if chunks:
            self._begin_mixed_step(at, chunks)
        elif decoding.count:
            # Whoever was preempted just now may come back with the next step.
            self._begin_run(at, 1 if preempted and len(self._waiting) else 0)

    def _preempt(self) -> int:
        """Send sequences back until the others' next step has its blocks; how many it takes."""
        pool, decoding = self._pool, self._decoding
        while (growth := decoding.growth_now()) > pool.free + pool.cached:
            # Those before the one that found no block took every cached one.
            pool.settle(-pool.free - pool.cached)
            if self._by_priority:
                victim = max(self._running, key=in_priority_order)
            else:
                victim = next(reversed(self._running))
            if victim.state is State.DECODING:
                written = victim.written_tokens + decoding.step - victim.joined_step
                self._leave_decoding(victim)
                victim.written_tokens = written
            else:
                self._prefilling.remove(victim)
                del self._running[victim]
                self._free(victim, victim.prompt_tokens)
            victim.prompt_tokens = victim.input_tokens + victim.written_tokens
            victim.computed_tokens = 0
            victim.preemptions += 1
            victim.state = State.WAITING
            self._waiting.push_back(victim)
            self._preempted += 1
            self._happened().preempted.append(victim)
        return growth

    def _admit(self, chunks: list[tuple[Sequence, int]], budget: int, at: float) -> None:
        """Start prefills in the queue's order while tokens, places and blocks last."""
        pool, waiting, running = self._pool, self._waiting, self._running
        config, block = self.config, self._block
        while budget > 0 and len(running) < config.max_num_seqs:
            sequence = waiting.head()
            if sequence is None:
                return
            prompt = sequence.prompt_tokens
            blocks = -(-prompt // block)
            available = pool.free + pool.cached - self._watermark_blocks
            found: Match | None = None
            cached = shared = 0
            if sequence.block_hashes and config.prefix_caching:
                size = sequence.hash_tokens or block
                # The last token is computed in any case: it gives the first one of the answer.
                most = min((prompt - 1) // size, len(sequence.block_hashes))
                found = pool.match(sequence.block_hashes, size // block, most)
                shared = found.count * (size // block)
                cached = found.count * size
                available -= found.idle_blocks
            if blocks - shared > available:
                return
            waiting.remove(sequence)
            running[sequence] = None
            self._prefilling.append(sequence)
            sequence.state = State.PREFILLING
            if sequence.admitted_at is None:
                sequence.admitted_at = at
            if found is not None:
                sequence.node = pool.hold(found)
                sequence.shared_blocks = shared
                self._prefix_queries += prompt
                self._prefix_hits += cached
                if not sequence.preemptions:
                    sequence.cached_tokens = cached
            sequence.computed_tokens = cached
            pool.free -= blocks - shared
            if pool.free < 0:
                pool.settle()
            tokens = min(budget, prompt - cached)
            budget -= tokens
            chunks.append((sequence, tokens))

    def _begin_mixed_step(self, at: float, chunks: list[tuple[Sequence, int]]) -> None:
        prefill = pairs = 0  # twice the pairs of a prefilled token and one it attends to
        for sequence, tokens in chunks:
            prefill += tokens
            pairs += tokens * (2 * sequence.computed_tokens + tokens)
        context = (pairs + prefill) // (2 * prefill)
        decoding = self._decoding
        seconds = self._model.step_seconds(decoding.count, decoding.context, prefill, context)
        self._chunks = chunks
        self._steps = 1
        decoding.move(1)
        self._end = at + seconds

    def _begin_run(self, at: float, most: int) -> None:
        """Decode until the next one finishes or blocks run out, at most ``most`` steps if given.

        The blocks of the first step are taken already; those of later ones are owed.
        """
        decoding = self._decoding
        steps = most or decoding.steps_to_finish()
        if steps > 1:
            pool = self._pool
            available = pool.free + pool.cached
            first = decoding.step + 1
            growth = decoding.growth(first, first + steps - 1)
            if growth > available:
                steps = 1 + decoding.steps_with(available, first)
                growth = decoding.growth(first, first + steps - 1)
            pool.free -= growth
        self._end = at + self._model.run_seconds(decoding.count, decoding.context, steps)
        self._steps = steps
        decoding.move(steps)
