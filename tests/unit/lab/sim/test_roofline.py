from __future__ import annotations

import itertools

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.hardware import HARDWARE
from forebay.lab.sim.models import MODELS
from forebay.lab.sim.roofline import Efficiency, RooflineSteps

CARDS = {card.name: card for card in HARDWARE}
H100 = CARDS["h100"]
A100 = CARDS["a100"]
LLAMA_8B = next(model for model in MODELS if model.name == "llama-3.1-8b")
LLAMA_70B = next(model for model in MODELS if model.name == "llama-3.1-70b")
PERFECT = Efficiency(memory=1, compute=1, overhead_s=0)


def test_one_sequence_reads_the_weights_once_a_token() -> None:
    steps = RooflineSteps(H100, LLAMA_8B, efficiency=PERFECT)
    read = LLAMA_8B.read_bytes("fp16") + 1000 * LLAMA_8B.kv_bytes_per_token()
    assert steps.step_seconds(1, 1000, 0, 0) == pytest.approx(read / 3.35e12)


def test_a_long_prompt_is_bound_by_compute() -> None:
    steps = RooflineSteps(H100, LLAMA_8B, efficiency=PERFECT)
    linear = 2 * 8192 * LLAMA_8B.layer_parameters
    pairs = 8192 * 4096
    flops = linear + 4 * 32 * 4096 * pairs + 2 * LLAMA_8B.embedding_parameters
    assert steps.step_seconds(0, 0, 8192, 4096) == pytest.approx(flops / 989.4e12)


def test_the_run_that_crosses_from_compute_to_memory() -> None:
    """A batch of 256 computes for longer than it reads until the contexts have grown."""
    slow = Efficiency(memory=1, compute=0.9, overhead_s=0)
    steps = RooflineSteps(A100, LLAMA_8B, efficiency=slow)
    single = [steps.step_seconds(256, 256 * (300 + j), 0, 0) for j in range(400)]
    rises = [later - earlier for earlier, later in itertools.pairwise(single)]
    assert rises[0] != pytest.approx(rises[-1], rel=0.01)
    assert steps.run_seconds(256, 76_800, 400) == pytest.approx(sum(single), rel=1e-9)


def test_fp8_helps_only_where_the_card_has_it() -> None:
    for card, faster in ((H100, 2.0), (A100, 1.0)):
        fp16 = RooflineSteps(card, LLAMA_8B, efficiency=PERFECT).step_seconds(0, 0, 4096, 0)
        fp8 = RooflineSteps(card, LLAMA_8B, precision="fp8", efficiency=PERFECT).step_seconds(
            0, 0, 4096, 0
        )
        assert fp16 / fp8 == pytest.approx(faster, rel=0.01)


def test_tensor_parallel_divides_the_work_and_pays_for_all_reduces() -> None:
    one = RooflineSteps(H100, LLAMA_70B, efficiency=PERFECT)
    four = RooflineSteps(H100, LLAMA_70B, tensor_parallel=4, efficiency=PERFECT)
    alone, shared = one.step_seconds(1, 1000, 0, 0), four.step_seconds(1, 1000, 0, 0)
    assert alone / 4 + 2 * 80 * 5e-6 < shared < alone / 4 + 2 * 80 * 6e-6


@pytest.mark.parametrize(
    "wrong", [Efficiency(memory=0), Efficiency(compute=1.1), Efficiency(overhead_s=-1)]
)
def test_impossible_efficiencies_are_refused(wrong: Efficiency) -> None:
    with pytest.raises(ConfigError, match="efficiency"):
        RooflineSteps(H100, LLAMA_8B, efficiency=wrong)


@pytest.mark.parametrize("card", HARDWARE, ids=lambda card: card.name)
def test_every_number_has_a_source_and_a_plausible_size(card: object) -> None:
    from forebay.lab.sim.hardware import Hardware

    assert isinstance(card, Hardware)
    assert card.source
    assert 100e12 <= card.fp16_flops <= 1e15
    assert card.fp8_flops is None or card.fp8_flops == pytest.approx(2 * card.fp16_flops, rel=0.01)
    assert 24 << 30 <= card.memory_bytes <= 141 << 30
    assert 300e9 <= card.bandwidth_bytes_per_s <= 4800e9
