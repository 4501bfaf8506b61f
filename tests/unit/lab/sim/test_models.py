from __future__ import annotations

import pytest

from forebay.lab.sim.models import MODELS, Model, kv_bytes_per_layer

BY_NAME = {model.name: model for model in MODELS}


def test_the_known_case_of_the_kv_formula() -> None:
    assert kv_bytes_per_layer(8, 4096, 32, 128, 2) == 512 << 20


def test_grouped_queries_divide_and_fp8_halves_the_kv() -> None:
    model = BY_NAME["llama-3.1-8b"]
    full = model.layers * kv_bytes_per_layer(1, 1, model.heads, model.head_size)
    assert model.kv_bytes_per_token("fp16") * 4 == full
    assert model.kv_bytes_per_token("fp8") * 2 == model.kv_bytes_per_token("fp16")
    assert model.kv_bytes_per_token() == 131_072


# Totals of the safetensors files on the models' pages.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-7b", 7_615_616_512),
        ("llama-3.1-8b", 8_030_261_248),
        ("qwen2.5-14b", 14_770_033_664),
        ("llama-3.1-70b", 70_553_706_496),
    ],
)
def test_parameters_follow_from_the_shape(name: str, parameters: int) -> None:
    assert BY_NAME[name].parameters == parameters


def test_four_bit_weights_shrink_an_8b_model_as_reported() -> None:
    """F4.4: 16.2 -> 5.8 GB."""
    model = BY_NAME["llama-3.1-8b"]
    assert model.weight_bytes("fp16") / 1e9 == pytest.approx(16.2, rel=0.02)
    assert model.weight_bytes("int4") / 1e9 == pytest.approx(5.8, rel=0.03)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_step_reads_no_more_than_there_is(model: Model) -> None:
    for precision in ("fp16", "fp8", "int4"):
        assert 0.8 * model.weight_bytes(precision) < model.read_bytes(precision)
        assert model.read_bytes(precision) <= model.weight_bytes(precision)
