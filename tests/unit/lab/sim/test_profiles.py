from __future__ import annotations

from pathlib import Path

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.profiles import (
    EngineLimits,
    FittedProfile,
    GpuProfile,
    Residual,
    find_profile,
    profiles,
    save_profile,
)
from forebay.lab.sim.slots import SlotLevel, SlotRates

RATES = SlotRates(
    levels=(SlotLevel(in_flight=1, decode_s=0.007, context_token_s=1e-5),),
    prefill_s=0.01,
    prefill_token_s=0.004,
    prefill_pair_s=1e-6,
)


@pytest.mark.parametrize(
    "short",
    [
        "h100/8b",
        "H100/8B",
        "h100/llama-3.1-8b",
        "h100/8b/fp16",
        "h100/8b/tp1/fp16",
        "h100/llama-3.1-8b/fp16/tp1/kv-fp16",
    ],
)
def test_short_forms_mean_the_full_name(short: str) -> None:
    profile = find_profile(short)
    assert profile.name == "h100/llama-3.1-8b/fp16/tp1"
    assert find_profile(profile.name) == profile


def test_every_listed_profile_is_found_by_its_name_and_runs() -> None:
    listed = profiles()
    assert len(listed) > 200
    assert len({profile.name for profile in listed}) == len(listed)
    for profile in listed:
        assert find_profile(profile.name) == profile
        assert profile.kv_tokens() >= 2048
        assert profile.step_model().step_seconds(1, 100, 0, 0) > 0


def test_all_cards_and_sizes_of_the_promise_are_there() -> None:
    cards = {profile.hardware.name for profile in profiles()}
    assert cards == {"l4", "l20", "a10", "rtx4090", "a100", "h20", "h100", "h200"}
    assert {profile.model.size for profile in profiles()} == {"1.5b", "7b", "8b", "14b", "70b"}


def test_capacity_of_the_cache() -> None:
    """(80 GiB x 0.9 - 1 GiB - 16.06 GB) / 131,072 bytes."""
    profile = find_profile("h100/8b")
    assert profile.kv_tokens() == pytest.approx((71 * 2**30 - 16.06e9) / 131_072, rel=1e-3)
    assert profile.kv_tokens(0.5) < profile.kv_tokens(0.9)
    assert find_profile("h100/8b/kv-fp8").kv_tokens() == pytest.approx(
        2 * profile.kv_tokens(), abs=1
    )


def test_cards_beyond_the_kv_heads_keep_copies() -> None:
    two, four = find_profile("l4/1.5b/tp2"), find_profile("l4/1.5b/tp4")
    assert four.kv_tokens() < 1.1 * two.kv_tokens()


def test_engine_config_takes_changes() -> None:
    config = find_profile("h100/8b").engine_config(max_num_seqs=8, gpu_memory_utilization=0.5)
    assert config.max_num_seqs == 8
    assert config.kv_tokens == find_profile("h100/8b").kv_tokens(0.5)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("h10/8b", "no card 'h10' .* did you mean h100"),
        ("h100/llama-3-8b", "no model .* did you mean llama-3.1-8b"),
        ("h100/8b/fp15", "no option .* did you mean fp16"),
        ("h100/8b/tp3", "no option 'tp3'"),
        ("xyzzy/8b", "known are l4, l20"),
        ("h100", "is not a profile: write CARD/MODEL"),
        ("h100//8b", "is not a profile"),
        ("", "is not a profile"),
        ("h100/8b/fp16/fp8", "says precision twice"),
        ("h100/7b/tp8", "28 attention heads, which 8 cards cannot share evenly.*tp4"),
        ("l4/70b", "does not fit: the weights take 141.1 GB and one card gives 23.2 GB.*would fit"),
        ("missing.json", "cannot be read"),
    ],
)
def test_wrong_names_get_one_clear_sentence(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        find_profile(name)
    assert "\n" not in str(caught.value)


def test_what_would_fit_really_does() -> None:
    for name in ("l4/70b", "a10/14b", "h100/70b", "rtx4090/70b/int4"):
        with pytest.raises(ConfigError, match="does not fit") as caught:
            find_profile(name)
        offered = str(caught.value).rsplit(": ", 1)[1].rstrip(".").split(", ")
        assert offered
        for other in offered:
            assert find_profile(other).name == other


def test_a_share_that_leaves_no_room_is_refused() -> None:
    profile = find_profile("h100/8b")
    assert isinstance(profile, GpuProfile)
    with pytest.raises(ConfigError, match="does not fit"):
        profile.kv_tokens(0.2)
    with pytest.raises(ConfigError, match="gpu_memory_utilization"):
        profile.kv_tokens(1.5)


def test_a_fitted_profile_survives_its_file(tmp_path: Path) -> None:
    profile = FittedProfile(
        name="mine",
        rates=RATES,
        limits=EngineLimits(max_num_seqs=4),
        residuals=(Residual(what="decode", measured_s=1.0, fitted_s=1.1),),
    )
    path = tmp_path / "mine.json"
    save_profile(profile, path)
    found = find_profile(str(path))
    assert found == profile
    assert found.engine_config(max_model_len=512).max_num_seqs == 4
    assert found.step_model().step_seconds(1, 0, 0, 0) == 0.007
    assert found.kv_tokens() == 131_072
    assert profile.residuals[0].error == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not a fitted profile"),
        ("[]", "is not a fitted profile"),
        ('{"name": "x", "rates": {}}', "is not a fitted profile"),
        ('{"name": "x", "rats": {}}', "is not a fitted profile"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        find_profile(str(path))


def test_a_later_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "later.json"
    save_profile(FittedProfile(name="x", rates=RATES, forebay_profile=2), path)
    with pytest.raises(ConfigError, match="layout 2"):
        find_profile(str(path))
