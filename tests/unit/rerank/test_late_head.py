"""The head as a graph: the numbers of its training, int8, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from forebay.kernel.errors import ConfigError, EngineError
from forebay.kernel.tokens import TokenStates
from forebay.lab.distill.late import Floats, late_scores, softmax
from forebay.lab.distill.late_export import (
    HeadDescription,
    calibrate_scores,
    write_late_head,
)
from forebay.rerank.late_head import LateHead, LateHeadInfo, TokenCodes, max_sims
from tests.unit.rerank.heads import small_head

INPUTS = 24


def told(rows: Floats) -> TokenStates:
    return TokenStates(len(rows), rows.shape[1], rows.astype("<f4").tobytes())


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(9)


def rows(random: np.random.Generator, tokens: int) -> Floats:
    return random.standard_normal((tokens, INPUTS)).astype(np.float32)


def test_the_graph_scores_as_training_does(tmp_path: Path, random: np.random.Generator) -> None:
    trained = small_head(INPUTS, 128)
    trained.weight += random.standard_normal(INPUTS).astype(np.float32)
    trained.passage_offset += np.float32(0.3)
    path = tmp_path / "late.onnx"
    write_late_head(trained, path, HeadDescription("mark", 0.4, 0.05, "rows"))
    head = LateHead(path)
    assert head.info == LateHeadInfo("mark", INPUTS, 128, 0.4, 0.05)
    query, passages = rows(random, 7), [rows(random, tokens) for tokens in (1, 30, 512)]
    found = max_sims(
        head.query(told(query), 64), [head.passage(told(passage)) for passage in passages]
    )
    assert found == pytest.approx(late_scores(trained, query, passages), abs=0.01)


def test_a_token_is_its_codes_and_a_scale(tmp_path: Path, random: np.random.Generator) -> None:
    path = tmp_path / "late.onnx"
    write_late_head(small_head(INPUTS, 128), path, HeadDescription("mark", 0, 1, ""))
    codes = LateHead(path).passage(told(rows(random, 10)))
    assert codes.codes.shape == (10, 128)
    assert codes.size_bytes == 10 * 130
    assert np.abs(codes.codes.astype(int)).max(axis=1).tolist() == [127] * 10
    lengths = np.linalg.norm(codes.codes * codes.scales[:, None].astype(np.float32), axis=1)
    assert lengths == pytest.approx(np.ones(10), abs=0.01)


def test_only_so_many_query_tokens_are_compared(
    tmp_path: Path, random: np.random.Generator
) -> None:
    path = tmp_path / "late.onnx"
    write_late_head(small_head(INPUTS), path, HeadDescription("mark", 0, 1, ""))
    query = rows(random, 20)
    head = LateHead(path)
    assert np.array_equal(head.query(told(query), 5), head.query(told(query[:5]), 64))
    assert head.query(told(query), 5).shape == (5, 32)


def test_states_of_another_size_are_refused(tmp_path: Path, random: np.random.Generator) -> None:
    path = tmp_path / "late.onnx"
    write_late_head(small_head(16), path, HeadDescription("mark", 0, 1, ""))
    with pytest.raises(EngineError, match="16 dimensions"):
        LateHead(path).passage(told(rows(random, 3)))


def test_what_is_no_head_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torn.onnx").write_bytes(b"torn")
    with pytest.raises(ConfigError, match=r"torn\.onnx cannot be loaded"):
        LateHead(tmp_path / "torn.onnx")
    tensor = helper.make_tensor_value_info("states", TensorProto.FLOAT, ["tokens", 4])
    other = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["tokens", 4])
    node = helper.make_node("Identity", ["states"], ["out"])
    model = helper.make_model(
        helper.make_graph([node], "other", [tensor], [other]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    onnx.save_model(model, str(tmp_path / "other.onnx"))
    with pytest.raises(ConfigError, match=r"other\.onnx is no head"):
        LateHead(tmp_path / "other.onnx")


def test_max_sim_by_hand() -> None:
    query = np.array([[0.5, 0], [0, 0.5]], np.float32)
    near = TokenCodes(np.array([[127, 0], [0, 127]], np.int8), np.full(2, 1 / 127, np.float16))
    half = TokenCodes(np.array([[127, 0]], np.int8), np.full(1, 1 / 127, np.float16))
    assert max_sims(query, [near, half]) == pytest.approx([1.0, 0.5], abs=1e-3)


def test_calibration_finds_the_curve_that_made_the_labels() -> None:
    random = np.random.default_rng(2)
    scores = random.uniform(0.2, 0.9, 20_000)
    relevant = random.uniform(size=20_000) < 1 / (1 + np.exp(-(scores - 0.6) / 0.05))
    middle, width = calibrate_scores(scores, relevant)
    assert middle == pytest.approx(0.6, abs=0.01)
    assert width == pytest.approx(0.05, abs=0.005)


def test_calibration_survives_labels_that_scores_part_cleanly() -> None:
    scores = np.linspace(0, 1, 40)
    middle, width = calibrate_scores(scores, scores > 0.5)
    assert 0.4 < middle < 0.6
    assert 0 < width < 0.2
    assert softmax(np.zeros(2)).tolist() == [0.5, 0.5]
