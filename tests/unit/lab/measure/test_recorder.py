"""What is recorded comes out: counts, times, rates, slices, within bounds."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.histogram import decode
from forebay.lab.measure.recorder import OTHER, Recorder, RecorderOptions
from forebay.lab.measure.result import (
    CUT,
    DISCONNECTED,
    NOT_SENT,
    OK,
    REFUSED,
    STATUSES,
    TIMEOUT,
    Run,
    RunResult,
    decode_result,
    encode_result,
)

RUN = Run(source="bench", target="http://t/v1", fingerprint="f")


def record(
    requests: Iterable[Finished],
    options: RecorderOptions | None = None,
    duration_s: float | None = None,
) -> RunResult:
    recorder = Recorder(options)
    for finished in requests:
        recorder.record(finished)
    return recorder.result(RUN, duration_s=duration_s)


def one(at_s: float, total_s: float, status: str = OK, **facts: object) -> Finished:
    return Finished(
        at_s=at_s,
        kind=str(facts.pop("kind", "light")),
        status=status,
        finished_at_s=at_s + total_s,
        **facts,  # type: ignore[arg-type]
    )


def test_good_is_whole_and_within_the_deadline() -> None:
    result = record(
        [
            one(0, 0.5, deadline_s=1.0),
            one(1, 1.5, deadline_s=1.0),
            one(2, 9.0),
            one(3, 0.1, CUT, deadline_s=1.0),
            one(4, 0.1, REFUSED, deadline_s=1.0, code=429),
            one(5, 0.1, DISCONNECTED, deadline_s=1.0),
            one(6, 0.0, NOT_SENT, deadline_s=1.0),
        ],
        duration_s=10.0,
    )
    total = result.total
    assert (total.sent, total.ok, total.good) == (6, 3, 2)
    assert (total.disconnected, total.not_sent) == (1, 1)
    assert total.goodput_share == pytest.approx(2 / 6)
    assert total.goodput_per_s == pytest.approx(0.2)
    assert total.statuses == {
        OK: 3, CUT: 1, REFUSED: 1, DISCONNECTED: 1, NOT_SENT: 1,
    }  # fmt: skip
    assert result.codes == {"429": 1}
    assert result.offered_per_s == pytest.approx(0.7)
    assert result.sent_per_s == pytest.approx(0.6)


def test_a_time_out_counts_with_what_it_waited() -> None:
    result = record([one(0, 0.2, first_at_s=0.1), one(1, 30.0, TIMEOUT), one(2, 0.01, REFUSED)])
    assert result.total.total.count == 2
    assert result.total.total.max_s == pytest.approx(30.0)
    assert result.total.ttft.count == 2
    assert result.total.ttft.max_s == pytest.approx(30.0)
    assert result.total.refused.count == 1
    assert result.total.refused.max_s == pytest.approx(0.01)


def test_gaps_come_one_by_one_or_as_mean_and_number() -> None:
    result = record(
        [
            one(0, 1.0, first_at_s=0.1, last_at_s=0.9, gaps_s=(0.3, 0.5), output_tokens=9),
            one(1, 1.0, first_at_s=1.1, last_at_s=1.4, mean_gap_s=0.1, gap_count=3),
            one(2, 1.0, CUT, first_at_s=2.1, gaps_s=(0.7,)),
        ]
    )
    itl = result.total.itl
    assert itl.count == 6
    assert itl.mean_s == pytest.approx((0.3 + 0.5 + 3 * 0.1 + 0.7) / 6)
    assert result.total.tpot.count == 1
    assert result.total.tpot.mean_s == pytest.approx(0.8 / 8)


def test_kinds_and_tenants_add_up_to_all() -> None:
    rng = random.Random(4)
    requests = [
        one(
            at / 10,
            rng.expovariate(2),
            rng.choice(STATUSES),
            kind=rng.choice(["light", "heavy"]),
            tenant=rng.choice(["a", "b", "c"]),
            first_at_s=at / 10 + 0.01,
            input_tokens=rng.randrange(100),
            output_tokens=rng.randrange(100),
        )
        for at in range(500)
    ]
    result = record(requests)
    for parts in (result.by_kind, result.by_tenant):
        assert sum(part.sent for part in parts.values()) == result.total.sent
        assert sum(part.good for part in parts.values()) == result.total.good
        assert sum(part.output_tokens for part in parts.values()) == result.total.output_tokens
        assert sum(part.ttft.count for part in parts.values()) == result.total.ttft.count
    light = [finished for finished in requests if finished.kind == "light"]
    assert result.by_kind["light"].input_tokens == sum(one.input_tokens for one in light)


def test_batches_do_not_show() -> None:
    rng = np.random.default_rng(5)
    requests = [one(at / 50, float(rng.exponential()), gaps_s=(0.1, 0.2)) for at in range(1_000)]
    whole = record(requests)
    assert record(requests, RecorderOptions(batch_rows=7)) == whole
    rng.shuffle(requests)
    shuffled = record(requests)
    assert shuffled.total.total.p99_s == whole.total.total.p99_s
    assert shuffled.timeline == whole.timeline


def test_recorders_add_up() -> None:
    rng = random.Random(7)
    requests = [
        one(
            at / 10,
            rng.expovariate(2),
            rng.choice(STATUSES),
            kind=rng.choice("abc"),
            tenant=rng.choice("xyz"),
            gaps_s=(0.25,),
            rung="bm25",
            code=500,
        )
        for at in range(900)
    ]
    options = RecorderOptions(max_slices=50)
    parts = [Recorder(options) for _ in range(3)]
    # The last one is short: its slices have not widened yet.
    for number, finished in enumerate(requests):
        parts[0 if number > 300 else number % 3].record(finished)
    whole = record(requests, options)
    parts[0].absorb(parts[1])
    parts[0].absorb(parts[2])
    added = parts[0].result(RUN)
    assert added.timeline == whole.timeline
    assert added.total.statuses == whole.total.statuses
    assert added.total.itl == whole.total.itl
    assert added.codes == whole.codes and added.rungs == whole.rungs
    assert {name: part.total.p99_s for name, part in added.by_kind.items()} == {
        name: part.total.p99_s for name, part in whole.by_kind.items()
    }
    assert {name: part.good for name, part in added.by_tenant.items()} == {
        name: part.good for name, part in whole.by_tenant.items()
    }


def test_slices_are_by_intended_start() -> None:
    result = record(
        [
            one(0.5, 3.0, deadline_s=1.0, output_tokens=4, first_at_s=1.0, gaps_s=(0.25,)),
            one(1.2, 0.1, kind="heavy"),
            one(3.9, 0.05, REFUSED),
        ]
    )
    timeline = result.timeline
    assert timeline.width_s == 1.0
    assert [one.start_s for one in timeline.slices] == [0, 1, 2, 3]
    first = timeline.slices[0].kinds["light"]
    assert (first.sent, first.ok, first.good) == (1, 1, 0)
    assert decode(first.total)[0][0] == pytest.approx(3.0, rel=0.01)
    assert decode(first.ttft)[0][0] == pytest.approx(0.5, rel=0.01)
    assert decode(first.itl)[1].tolist() == [1]
    assert list(timeline.slices[1].kinds) == ["heavy"]
    assert timeline.slices[2].kinds == {}
    assert timeline.slices[3].kinds["light"].statuses == {REFUSED: 1}
    assert [one.finished for one in timeline.slices] == [0, 1, 0, 2]
    assert [one.output_tokens for one in timeline.slices] == [0, 0, 0, 4]


def test_slices_widen_instead_of_growing_in_number() -> None:
    requests = [one(at * 0.7, 0.2, output_tokens=1) for at in range(2_000)]
    result = record(requests, RecorderOptions(max_slices=100, batch_rows=64))
    timeline = result.timeline
    assert 50 < len(timeline.slices) <= 100
    assert timeline.width_s == 16.0
    assert sum(one.kinds["light"].sent for one in timeline.slices) == 2_000
    assert sum(one.finished for one in timeline.slices) == 2_000
    assert sum(decode(one.kinds["light"].total)[1].sum() for one in timeline.slices) == 2_000
    assert timeline.slices[1].kinds["light"].sent == 23


def test_the_warm_up_is_shown_but_not_counted() -> None:
    requests = [one(at, 0.1 if at >= 5 else 9.0, gaps_s=(at + 1.0,)) for at in range(10)]
    result = record(requests, RecorderOptions(warmup_s=5.0, batch_rows=3), duration_s=10.0)
    assert result.total.sent == 5
    assert result.total.total.max_s == pytest.approx(0.1)
    assert result.total.itl.max_s == pytest.approx(10.0)
    assert (result.duration_s, result.warmup_s) == (5.0, 5.0)
    assert result.sent_per_s == 1.0
    assert sum(part.kinds["light"].sent for part in result.timeline.slices[:10]) == 10


def test_names_beyond_the_bound_go_together() -> None:
    result = record(one(0, 0.1, kind=f"k{number}", tenant=f"t{number}") for number in range(300))
    assert len(result.by_kind) == len(result.by_tenant) == 64
    assert result.by_kind[OTHER].sent == 300 - 63
    assert result.total.sent == 300


def test_cache_tiers_and_rungs_are_counted() -> None:
    recorder = Recorder()
    recorder.record(one(0, 0.1, cache="embedding=hit, retrieval=miss", rung="bm25"))
    recorder.record(one(0, 0.1, cache="embedding=hit,answer=off", rung="bm25"))
    recorder.note(CUT, "first")
    recorder.note(CUT, "second")
    result = recorder.result(RUN)
    assert result.cache == {"embedding": {"hit": 2}, "retrieval": {"miss": 1}, "answer": {"off": 1}}
    assert result.rungs == {"bm25": 2}
    assert result.messages == {CUT: "first"}


def test_a_result_says_the_same_when_read_again() -> None:
    result = record([one(0, 0.2, first_at_s=0.1, gaps_s=(0.05,))])
    assert decode_result(encode_result(result)) == result


def test_nothing_recorded_is_a_result_too() -> None:
    result = record([])
    assert result.total.sent == 0 and result.timeline.slices == ()
    assert decode_result(encode_result(result)) == result


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"schema": 9}', b"\xff", b"[" * 100_000])
def test_what_is_no_result_is_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"a\.json is not a result"):
        decode_result(data, "a.json")


def test_another_schema_is_refused() -> None:
    data = encode_result(record([])).replace(b'"schema":1', b'"schema":2')
    with pytest.raises(ConfigError, match="schema 2"):
        decode_result(data)


def test_memory_does_not_grow_with_requests() -> None:
    import tracemalloc

    rng = random.Random(6)
    recorder = Recorder(RecorderOptions(batch_rows=2_048))
    sample = [rng.lognormvariate(-1, 1) for _ in range(1_000)]
    tracemalloc.start()
    for number in range(100_000):
        recorder.record(one(number / 100, sample[number % 1_000], gap_count=3, mean_gap_s=0.01))
    recorder.result(RUN)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The rows alone would be 10 MB.
    assert held < 4_000_000
