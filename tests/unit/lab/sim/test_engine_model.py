"""The engine against the plain reference: same times, same tokens, same blocks, at every event."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.lab.sim.engine import Engine, EngineConfig, RequestTooLong, Sequence, State
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.slots import SlotLevel, SlotRates, SlotSteps
from forebay.lab.sim.steps import StepModel
from forebay.testing.steps import LinearSteps
from tests.unit.lab.sim.reference import Job, ReferenceEngine

TICK = 2.0**-20


def small_steps() -> LinearSteps:
    """Steps of few ticks, so that arrivals often fall on the very end of one."""
    model = LinearSteps(TICK)
    model.overhead, model.sequence, model.context = 7 * TICK, TICK, TICK
    model.prefill, model.prefill_context = 2 * TICK, TICK
    return model


def odd_steps() -> LinearSteps:
    """Times that no float holds exactly."""
    model = LinearSteps(TICK)
    model.overhead, model.sequence, model.context = 0.0081, 1.7e-5, 3.3e-8
    model.prefill, model.prefill_context = 3.1e-5, 1.1e-9
    return model


@dataclass(frozen=True)
class Action:
    """Something from outside after a gap: a sequence arrives, leaves, or someone looks."""

    gap: int
    kind: str
    which: int = 0
    input_tokens: int = 1
    output_tokens: int = 1
    hashes: tuple[int, ...] = ()
    hash_blocks: int = 1
    priority: int = 0


configs = st.builds(
    lambda block, kv, seqs, extra, watermark, caching, scheduling: EngineConfig(
        kv_tokens=kv,
        block_tokens=block,
        watermark=watermark,
        max_num_seqs=seqs,
        max_num_batched_tokens=seqs + extra,
        max_model_len=1000,
        prefix_caching=caching,
        scheduling=scheduling,
    ),
    st.sampled_from([1, 2, 4, 5]),
    st.sampled_from([31, 48, 64]),
    st.sampled_from([2, 3, 6]),
    st.sampled_from([0, 3, 16, 64]),
    st.sampled_from([0.0, 0.01, 0.2]),
    st.booleans(),
    st.sampled_from(["fifo", "priority"]),
)
gaps = st.sampled_from([0, 1, 5, 20, 80])
arrivals = st.builds(
    Action,
    gap=gaps,
    kind=st.just("submit"),
    input_tokens=st.sampled_from([1, 4, 5, 12, 20]),
    output_tokens=st.sampled_from([1, 7, 20, 25]),
    hashes=st.sampled_from([(), (0,) * 8, (1, 2, 3, 4, 5, 6), (1, 2, 4, 3), (0, 0, 1)]),
    hash_blocks=st.sampled_from([0, 1, 2]),
    priority=st.integers(-1, 1),
)
others = st.builds(
    Action, gap=gaps, kind=st.sampled_from(["cancel", "look"]), which=st.integers(0, 30)
)
plans = st.lists(st.one_of(arrivals, arrivals, others), min_size=3, max_size=30)


class Pair:
    """Both engines under the same actions."""

    def __init__(self, config: EngineConfig, model: StepModel, exact: bool) -> None:
        self.engine = Engine(config, model)
        self.reference = ReferenceEngine(config, model)
        self.block = config.block_tokens
        self.exact = exact
        self.now = 0.0
        self.pairs: list[tuple[Sequence, Job]] = []
        self.log: list[tuple[float, str, int]] = []

    def act(self, action: Action, now: float) -> None:
        if action.kind == "submit":
            self.submit(action, now)
        elif action.kind == "cancel" and self.pairs:
            sequence, job = self.pairs[action.which % len(self.pairs)]
            self.engine.cancel(sequence, now)
            self.reference.cancel(job, now)
        self.look(now)

    def submit(self, action: Action, now: float) -> None:
        size = action.hash_blocks * self.block
        number = len(self.pairs)
        asked = (
            number,
            action.input_tokens,
            action.output_tokens,
            action.hashes,
            size,
            action.priority,
        )
        sequence, job = Sequence(*asked), Job(*asked)
        try:
            self.engine.submit(sequence, now)
        except RequestTooLong:
            assert sequence.state is State.NEW
            return
        self.reference.submit(job, now)
        self.pairs.append((sequence, job))

    def drain(self) -> None:
        while (at := self.engine.next_event_at()) is not None:
            # Without exact times the two do not end a step at the very same moment.
            self.look(at if self.exact else at + 1e-6)

    def look(self, now: float) -> None:
        self.now = now
        self.reference.move(now)
        progress = self.engine.advance(now)
        for sequence in progress.first_tokens:
            assert sequence.first_token_at is not None
            self.log.append((sequence.first_token_at, "first", sequence.id))
        for sequence in progress.finished:
            assert sequence.finished_at is not None
            self.log.append((sequence.finished_at, "finish", sequence.id))
        assert all(sequence.preemptions for sequence in progress.preempted)
        self.compare_sequences()
        self.compare_figures()

    def compare_sequences(self) -> None:
        for sequence, job in self.pairs:
            written = self.engine.produced(sequence)
            assert written <= sequence.output_tokens
            assert written == job.written
            assert sequence.preemptions == job.preemptions
            assert sequence.cached_tokens == (job.cached_tokens or 0)
            self.same_time(sequence.first_token_at, job.first_token_at)
            self.same_time(sequence.finished_at, job.finished_at)

    def same_time(self, mine: float | None, other: float | None) -> None:
        if self.exact or mine is None or other is None:
            assert mine == other
        else:
            assert mine == pytest.approx(other, rel=1e-9)

    def compare_figures(self) -> None:
        figures = self.engine.statistics()
        assert figures.blocks_free + figures.blocks_used + figures.blocks_cached == (
            figures.blocks_total
        )
        assert min(figures.blocks_free, figures.blocks_used, figures.blocks_cached) >= 0
        assert figures.blocks_used == self.reference.used()
        assert figures.blocks_free == self.reference.free()
        assert figures.running == len(self.reference.running)
        assert figures.waiting == len(self.reference.waiting)
        assert figures.steps == self.reference.steps
        assert figures.busy_s == pytest.approx(self.reference.busy_s(self.now), abs=1e-5)
        assert figures.generation_tokens >= sum(
            self.engine.produced(sequence) for sequence, _ in self.pairs
        )

    def check_end(self) -> None:
        assert self.engine.statistics().blocks_used == 0
        assert self.engine.statistics().running == self.engine.statistics().waiting == 0
        for sequence, _ in self.pairs:
            assert sequence.state in (State.FINISHED, State.CANCELLED)
        if self.exact:
            assert sorted(self.log) == sorted(self.reference.log)
            for kind in ("first", "finish"):
                times = [at for at, what, _ in self.log if what == kind]
                assert times == sorted(times)


@settings(max_examples=400, deadline=None)
@given(configs, plans)
def test_equals_the_reference_exactly(config: EngineConfig, plan: list[Action]) -> None:
    pair = Pair(config, small_steps(), exact=True)
    now = 0.0
    for action in plan:
        now += action.gap * TICK
        pair.act(action, now)
    pair.drain()
    pair.check_end()


def slots() -> SlotSteps:
    """A measured engine that gains little from batching."""
    levels = tuple(
        SlotLevel(in_flight=count, decode_s=0.007 * count**0.9, context_token_s=2.1e-6 * count)
        for count in (1, 2, 4)
    )
    return SlotSteps(
        SlotRates(levels=levels, prefill_s=0.003, prefill_token_s=5e-4, prefill_pair_s=1e-8)
    )


models = st.sampled_from([odd_steps(), find_profile("l4/8b").step_model(), slots()])


@settings(max_examples=150, deadline=None)
@given(configs, plans, models)
def test_equals_the_reference_within_rounding(
    config: EngineConfig, plan: list[Action], model: StepModel
) -> None:
    pair = Pair(config, model, exact=False)
    now = 0.0
    for action in plan:
        now += action.gap * 0.000737 + 1e-5
        pair.act(action, now)
    pair.drain()
    pair.check_end()


@settings(max_examples=100, deadline=None)
@given(configs, plans)
def test_nothing_depends_on_how_often_someone_looks(
    config: EngineConfig, plan: list[Action]
) -> None:
    """The times of a run that is only advanced at its end equal those of one looked at often."""
    results: list[list[tuple[float | None, float | None, int]]] = []
    for looks in (False, True):
        engine = Engine(config, small_steps())
        sequences: list[Sequence] = []
        now = 0.0
        for index, action in enumerate(plan):
            now += action.gap * TICK
            if action.kind == "submit":
                sequence = Sequence(
                    index, action.input_tokens, action.output_tokens, priority=action.priority
                )
                try:
                    engine.submit(sequence, now)
                except RequestTooLong:
                    continue
                sequences.append(sequence)
            elif action.kind == "cancel" and sequences:
                engine.cancel(sequences[action.which % len(sequences)], now)
            elif looks:
                engine.advance(now)
                engine.statistics()
        engine.advance(now + 10_000.0)
        results.append(
            [(item.first_token_at, item.finished_at, item.preemptions) for item in sequences]
        )
    assert results[0] == results[1]
