"""The engine by example: admission, order, cancellation, prefix cache, bad input."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.engine import Engine, EngineConfig, RequestTooLong, Sequence, State
from forebay.testing.steps import LinearSteps


def engine(**settings: Any) -> Engine:
    given: dict[str, Any] = {"kv_tokens": 10_000, "watermark": 0.0, **settings}
    return Engine(EngineConfig(**given), LinearSteps())


def drain(one: Engine) -> list[Sequence]:
    """Run to the end; who finished, in order."""
    finished: list[Sequence] = []
    while (at := one.next_event_at()) is not None:
        finished += one.advance(at).finished
    return finished


def test_one_sequence_takes_its_prefill_and_its_decode_steps() -> None:
    one, model = engine(), LinearSteps()
    sequence = Sequence(1, 100, 5)
    one.submit(sequence, 2.0)
    drain(one)
    prefill = model.step_seconds(0, 0, 100, 50)
    assert sequence.admitted_at == 2.0
    assert sequence.first_token_at == 2.0 + prefill
    assert sequence.finished_at == 2.0 + prefill + model.run_seconds(1, 100, 4)
    assert sequence.state is State.FINISHED


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    one, model = engine(max_num_batched_tokens=300, max_num_seqs=8), LinearSteps()
    sequence = Sequence(1, 700, 1)
    one.submit(sequence, 0.0)
    drain(one)
    chunks = [(300, 150), (300, 450), (100, 650)]
    assert sequence.finished_at == sum(model.step_seconds(0, 0, *chunk) for chunk in chunks)


def test_decodes_go_before_prefills() -> None:
    one = engine(max_num_batched_tokens=8, max_num_seqs=4)
    first, second = Sequence(1, 4, 50), Sequence(2, 16, 1)
    one.submit(first, 0.0)
    one.advance(one.next_event_at() or 0.0)
    one.submit(second, one.next_step_at() or 0.0)
    before = one.produced(first)
    drain(one)
    # Seven tokens a step are left to the prompt of 16: three steps, in each the other one decodes.
    assert second.first_token_at is not None and first.first_token_at is not None
    assert one.statistics().generation_tokens == 51
    assert before == 2


def test_first_come_first_served() -> None:
    one = engine(max_num_seqs=2)
    asked = [Sequence(number, 50 - number, 10) for number in range(8)]
    for sequence in asked:
        one.submit(sequence, 0.0)
    drain(one)
    starts = [sequence.admitted_at or 0.0 for sequence in asked]
    assert starts == sorted(starts)


def test_priority_goes_first_and_ties_by_arrival() -> None:
    one = engine(max_num_seqs=1, scheduling="priority")
    priorities = [0, 1, -1, 1, -1, 0]
    asked = [Sequence(number, 10, 3, priority=given) for number, given in enumerate(priorities)]
    for sequence in asked:
        one.submit(sequence, 0.0)
    assert [sequence.id for sequence in drain(one)] == [0, 2, 4, 5, 1, 3]


def test_the_last_one_is_preempted_and_writes_on_where_it_was() -> None:
    one = engine(kv_tokens=160, block_tokens=16)
    first, second = Sequence(1, 60, 60), Sequence(2, 60, 60)
    one.submit(first, 0.0)
    one.submit(second, 0.0)
    preempted: list[Sequence] = []
    while (at := one.next_event_at()) is not None:
        preempted += one.advance(at).preempted
    assert preempted == [second]
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert one.statistics().generation_tokens == 120
    assert first.finished_at is not None and second.finished_at is not None
    assert first.finished_at < second.finished_at


def test_the_lowest_priority_is_preempted() -> None:
    one = engine(kv_tokens=160, block_tokens=16, scheduling="priority")
    first, second = Sequence(1, 60, 60, priority=1), Sequence(2, 60, 60)
    one.submit(first, 0.0)
    one.submit(second, 0.0)
    drain(one)
    assert (first.preemptions, second.preemptions) == (1, 0)


def test_an_equal_prefix_is_computed_once() -> None:
    one = engine()
    hashes = tuple(range(6))
    first, second = Sequence(1, 100, 2, hashes), Sequence(2, 100, 2, hashes)
    other = Sequence(3, 100, 2, (0, 9, 2, 3, 4, 5))
    for sequence in (first, second, other):
        one.submit(sequence, one.next_event_at() or 0.0)
        drain(one)
    assert (first.cached_tokens, second.cached_tokens, other.cached_tokens) == (0, 96, 16)
    assert one.statistics().prefix_hit_tokens == 112
    assert one.statistics().prefix_query_tokens == 300
    assert one.statistics().blocks_cached == 6 + 5


def test_the_last_token_of_a_cached_prompt_is_computed_all_the_same() -> None:
    one = engine()
    for number in range(2):
        sequence = Sequence(number, 32, 2, (1, 2))
        one.submit(sequence, 0.0)
        drain(one)
    assert sequence.cached_tokens == 16


def test_the_next_turn_finds_the_answer_of_the_one_before() -> None:
    one = engine()
    first = Sequence(1, 40, 41, (1, 2, 3, 4, 5))
    one.submit(first, 0.0)
    drain(one)
    second = Sequence(2, 100, 1, (1, 2, 3, 4, 5, 6))
    one.submit(second, 1000.0)
    drain(one)
    assert second.cached_tokens == 80


def test_without_prefix_caching_nothing_is_kept() -> None:
    one = engine(prefix_caching=False)
    one.submit(Sequence(1, 100, 2, (1, 2, 3)), 0.0)
    drain(one)
    assert one.statistics().blocks_cached == 0


@pytest.mark.parametrize("moment", ["waiting", "prefilling", "decoding"])
def test_cancelling_frees_the_blocks_at_once(moment: str) -> None:
    one = engine(max_num_seqs=2, max_num_batched_tokens=64)
    first, second, third = (Sequence(number, 200, 100) for number in range(3))
    for sequence in (first, second, third):
        one.submit(sequence, 0.0)
    now = 0.0
    victim = {"waiting": third, "prefilling": second, "decoding": first}[moment]
    while victim.state.value != moment:
        now = one.next_event_at() or now
        one.advance(now)
    now += 1e-4
    before = one.statistics()
    one.cancel(victim, now)
    after = one.statistics()
    assert victim.state is State.CANCELLED
    assert (before.running + before.waiting) - (after.running + after.waiting) == 1
    assert (after.blocks_used < before.blocks_used) == (moment != "waiting")
    one.cancel(victim, now)  # a second time changes nothing
    assert one.statistics().cancelled == 1
    assert victim not in drain(one)
    assert one.statistics().blocks_used == 0
    assert one.next_event_at() is None


def test_tokens_can_be_read_at_any_moment() -> None:
    one = engine()
    sequence = Sequence(1, 10, 1000)
    one.submit(sequence, 0.0)
    one.advance(one.next_event_at() or 0.0)
    seen = [one.produced(sequence)]
    for _ in range(20):
        at = one.next_step_at()
        assert at is not None
        one.advance(at)
        seen.append(one.produced(sequence))
        steps = one.decoded_steps() - sequence.joined_step
        assert sequence.written_tokens + steps == seen[-1]
    assert seen == list(range(1, 22))


def test_an_idle_engine_says_so() -> None:
    one = engine()
    assert one.next_event_at() is None and one.next_step_at() is None
    assert one.advance(5.0).finished == []
    assert one.statistics().kv_use == 0.0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Sequence(1, 8000, 500), "max_model_len"),
        (Sequence(1, 4000, 2000), "KV cache"),
    ],
)
def test_what_can_never_fit_is_refused(asked: Sequence, words: str) -> None:
    with pytest.raises(RequestTooLong, match=words):
        engine(kv_tokens=4096).submit(asked, 0.0)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Sequence(1, 0, 5), "at least one of each"),
        (Sequence(1, 5, 0), "at least one of each"),
        (Sequence(1, 100, 5, (1,), 24), "multiple of block_tokens"),
    ],
)
def test_nonsense_is_refused(asked: Sequence, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        engine().submit(asked, 0.0)


def test_a_sequence_is_submitted_once() -> None:
    one, sequence = engine(), Sequence(1, 5, 5)
    one.submit(sequence, 0.0)
    with pytest.raises(ConfigError, match="submitted before"):
        one.submit(sequence, 0.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kv_tokens": 8}, "at least one block"),
        ({"watermark": 1.0}, "watermark"),
        ({"watermark": -0.1}, "watermark"),
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
        ({"block_tokens": 0}, "block_tokens must be at least 1"),
        ({"max_num_batched_tokens": 100}, "each running sequence takes one a step"),
        ({"scheduling": "fair"}, "fifo or priority"),
    ],
)
def test_a_contradictory_engine_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        engine(**settings)


class CountedSteps(LinearSteps):
    """Counts how often it is asked."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def step_seconds(self, *batch: int) -> float:
        self.asked += 1
        return super().step_seconds(*batch)

    def run_seconds(self, sequences: int, context_tokens: int, steps: int) -> float:
        self.asked += 1
        return super().run_seconds(sequences, context_tokens, steps)

    def steps_within(self, sequences: int, context_tokens: int, seconds: float) -> int:
        self.asked += 1
        return super().steps_within(sequences, context_tokens, seconds)


@pytest.mark.parametrize("output_tokens", [10, 100_000])
@pytest.mark.parametrize("sequences", [1, 200])
def test_work_depends_on_neither_tokens_nor_batch(output_tokens: int, sequences: int) -> None:
    model = CountedSteps()
    config = EngineConfig(kv_tokens=10**8, max_model_len=10**6, max_num_batched_tokens=10_000)
    one = Engine(config, model)
    for number in range(sequences):
        one.submit(Sequence(number, 20, output_tokens), 0.0)
    drain(one)
    assert one.statistics().generation_tokens == sequences * output_tokens
    # The first prefill, the others' together, and the runs of steps up to both ends.
    assert model.asked <= 10
