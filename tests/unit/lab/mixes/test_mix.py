"""Random mixes: the same for the same seed, within their bounds, and files that others read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.lab.mixes.mix import (
    DURATION_S,
    INPUT_TOKENS,
    MAX_MODEL_LEN,
    MIN_DEADLINE_S,
    OUTPUT_TOKENS,
    random_mix,
)
from forebay.lab.workload.arrivals import GammaArrivals, PoissonArrivals, PulseArrivals
from forebay.lab.workload.plan import read_workload

SEEDS = range(60)


def test_a_seed_gives_one_mix_and_one_list_of_requests() -> None:
    assert random_mix(7) == random_mix(7)
    assert random_mix(7).requests() == random_mix(7).requests()
    assert random_mix(7).workload.kinds != random_mix(8).workload.kinds


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes_deadlines_and_loads_lie_within_their_bounds(seed: int) -> None:
    mix = random_mix(seed)
    requests = mix.requests()
    kinds = mix.workload.kinds
    assert 2 <= len(kinds) <= 5
    assert 1 <= len(mix.workload.tenants) <= 20
    assert 0.1 < mix.load <= 5.5
    assert 20 <= len(requests) <= 8_000
    assert [one.index for one in requests] == list(range(len(requests)))
    assert requests[-1].at_s < DURATION_S[1]
    for one in requests:
        assert INPUT_TOKENS[0] <= one.input_tokens <= INPUT_TOKENS[1]
        assert OUTPUT_TOKENS[0] <= one.output_tokens <= OUTPUT_TOKENS[1]
        assert one.input_tokens + one.output_tokens <= MAX_MODEL_LEN
        assert one.deadline_s is not None
        assert one.deadline_s >= MIN_DEADLINE_S
        assert one.deadline_s >= 1.99 * mix.work.alone_s(one.input_tokens, one.output_tokens)


def test_seeds_differ_in_arrivals_engines_and_tenants() -> None:
    mixes = [random_mix(seed) for seed in SEEDS]
    assert {type(mix.workload.arrivals) for mix in mixes} == {
        PoissonArrivals,
        PulseArrivals,
        GammaArrivals,
    }
    assert {mix.replicas for mix in mixes} == {1, 2, 3}
    assert len({mix.profile for mix in mixes}) > 2
    assert min(mix.load for mix in mixes) < 0.5
    assert max(mix.load for mix in mixes) > 3
    assert max(len(mix.workload.tenants) for mix in mixes) > 10


def test_a_mix_is_a_workload_file(tmp_path: Path) -> None:
    mix = random_mix(5)
    file = tmp_path / "mix.json"
    file.write_bytes(msgspec.json.encode(mix.workload))
    assert list(read_workload(file).requests(mix.seed)) == mix.requests()
