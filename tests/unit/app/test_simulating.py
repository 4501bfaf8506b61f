"""Simulation from the command line: settings by word, profiles, a virtual run, its delivery."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from forebay.app.delivery import Delivery
from forebay.app.loads import LoadWords
from forebay.app.output import Output
from forebay.app.pools import EngineChanges, FleetWords, build_pools
from forebay.app.simulating import VirtualWords, profiles, run
from forebay.app.words import settings_of
from forebay.kernel.errors import ConfigError
from forebay.lab.measure.result import load_result
from forebay.lab.sim.serving import SimulatedServer

LOAD = LoadWords(mix="light", rate=20.0, duration=5.0)


def test_settings_are_read_by_name() -> None:
    options = settings_of(
        SimulatedServer,
        {"port": 1},
        ["max-num-seqs=64", "prefix_caching=false", "speed=2"],
        "--set",
    )
    assert (options.max_num_seqs, options.prefix_caching, options.speed) == (64, False, 2.0)


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("max_num_sequences=1", "knows no max_num_sequences .did you mean max_num_seqs.*names: "),
        ("max_num_seqs", "not 'max_num_seqs'"),
        ("max_num_seqs=many", "cannot be read"),
    ],
)
def test_a_wrong_setting_is_one_sentence(pair: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        settings_of(EngineChanges, {}, [pair], "--set")


def test_profiles_are_listed_and_shown(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert profiles(None, Output(as_json=True)) == 0
    rows = json.loads(capfdbinary.readouterr().out)
    (row,) = [row for row in rows if row["profile"] == "h100/llama-3.1-8b/fp16/tp1"]
    assert row["tokens_per_s_of_64"] > row["tokens_per_s_of_1"] > 0 < row["ttft_s"]
    assert profiles("h100/8b", Output(as_json=True)) == 0
    assert json.loads(capfdbinary.readouterr().out)["hardware"]["source"]
    with pytest.raises(ConfigError, match="h100"):
        profiles("h1000/8b", Output())


def test_a_virtual_run_is_printed_and_written(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = tmp_path / "run.json"
    fleet = FleetWords(profile="h100/8b", replicas=2, settings=["max_num_seqs=8"])
    assert run(fleet, VirtualWords(), LOAD, Delivery(Output(as_json=True), out, None, "en")) == 0
    printed = capfdbinary.readouterr().out
    assert printed == out.read_bytes()
    result = load_result(out)
    assert result.total.goodput_share == 1.0
    assert result.run.options["pools"][0]["engine"]["max_num_seqs"] == 8
    assert result.run.target.startswith("2 x h100/")


def test_people_read_a_table_and_no_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            FleetWords(profile="h100/8b"),
            VirtualWords(),
            LOAD,
            Delivery(Output(), None, None, "en"),
        )
        == 0
    )
    told = capfd.readouterr().out
    assert "good 100.00%" in told and "TTFT" in told and "{" not in told


@pytest.mark.parametrize(
    ("load", "warmup_s"),
    [
        (LoadWords(mix="light", rate=20.0, count=3), 60.0),
        (LoadWords(mix="light", rate=1e-9, duration=5.0), 0.0),
    ],
)
def test_a_run_of_nothing_is_no_success(
    load: LoadWords, warmup_s: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, words = tmp_path / "run.json", VirtualWords(warmup=warmup_s)
    assert run(FleetWords(profile="h100/8b"), words, load, Delivery(Output(), out, None, "en")) == 1
    assert "NOTHING WAS COUNTED" in capfd.readouterr().err
    assert load_result(out).duration_s >= 0.0


@pytest.mark.parametrize("warmup_s", [5.0, math.inf, math.nan])
def test_a_warm_up_as_long_as_the_load_is_refused(warmup_s: float) -> None:
    with pytest.raises(ConfigError, match="leaves nothing"):
        run(
            FleetWords(profile="h100/8b"),
            VirtualWords(warmup=warmup_s),
            LOAD,
            Delivery(Output(), None, None, "en"),
        )


def test_files_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "none" / "run.json"):
        with pytest.raises(ConfigError, match="cannot be written"):
            Delivery(Output(), out, None, "en")
    with pytest.raises(ConfigError, match="en or zh"):
        Delivery(Output(), None, None, "fr")


def test_a_full_disk_does_not_lose_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with pytest.raises(SystemExit) as ended:
        run(
            FleetWords(profile="h100/8b"),
            VirtualWords(),
            LOAD,
            Delivery(Output(), full, None, "en"),
        )
    assert ended.value.code == 1
    told = capfd.readouterr()
    assert "good 100.00%" in told.out and "/dev/full cannot be written" in told.err


def test_pools_have_their_own_words_before_the_common_ones() -> None:
    words = FleetWords(
        profile="h100/8b",
        pool=["short:max_input_tokens=100,max_num_seqs=4", "long:replicas=2,profile=l20/8b"],
        settings=["max_num_seqs=8", "max_model_len=16384"],
    )
    short, long = build_pools(words)
    assert (short.config.name, short.config.max_input_tokens, short.config.replicas) == (
        "short",
        100,
        1,
    )
    assert (short.config.engine.max_num_seqs, long.config.engine.max_num_seqs) == (4, 8)
    assert short.config.engine.max_model_len == long.config.engine.max_model_len == 16_384
    assert long.config.replicas == 2 and long.profile.startswith("l20/")


@pytest.mark.parametrize("pools", [["replicas=2"], ["a", "a"], ["a:replica=2"], ["a:replicas=0"]])
def test_a_wrong_pool_is_one_sentence(pools: list[str]) -> None:
    with pytest.raises(ConfigError):
        build_pools(FleetWords(profile="h100/8b", pool=pools))
    with pytest.raises(ConfigError, match="exclude each other"):
        build_pools(FleetWords(profile="h100/8b", replicas=2, pool=["a"]))
