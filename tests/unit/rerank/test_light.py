"""The light reranker: the graph says what the training says; the shipped model is whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from forebay.kernel.errors import ConfigError, EngineError
from forebay.kernel.stages import HitVectors
from forebay.lab.distill.light import LightExamples, LightTraining, first_parameters, score
from forebay.lab.distill.light_export import LightDescription, light_graph
from forebay.rerank.features import FEATURES, FEATURES_VERSION, Candidates
from forebay.rerank.light import LightModel
from tests.unit.rerank.test_features import hit, vectors

DIMENSIONS = 16
CURVES = ((1.5, 0.5), (2.5, 0.25))
"""Without sentences and with them."""


def examples(queries: int = 6, most: int = 9) -> LightExamples:
    chance = np.random.default_rng(2)

    def unit(*shape: int) -> np.ndarray:
        rows = chance.standard_normal(shape).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
        return rows

    features = chance.standard_normal((queries, most, len(FEATURES))).astype(np.float32)
    features[..., -2] = chance.random((queries, 1)) < 0.5
    features[..., -1] = chance.random((queries, most)) < 0.5
    mask = np.ones((queries, most), np.bool_)
    shares = np.full((queries, most), 1 / most, np.float32)
    weight = np.ones(queries, np.float32)
    return LightExamples(
        features, unit(queries, DIMENSIONS), unit(queries, most, DIMENSIONS), mask, shares, weight
    )


def graph(version: int = FEATURES_VERSION, curves: int = 2) -> tuple[bytes, dict[str, np.ndarray]]:
    chance = np.random.default_rng(4)
    parameters = first_parameters(examples(), LightTraining(dimensions=8))
    parameters["linear"] = chance.random(parameters["linear"].shape).astype(np.float32)
    parameters["query"] = parameters["query"].astype(np.float16).astype(np.float32)
    parameters["passage"] = parameters["passage"].astype(np.float16).astype(np.float32)
    description = LightDescription("embedder", version, [*CURVES][:curves], "made up")
    return light_graph(parameters, description), parameters


def test_the_graph_scores_as_training_does() -> None:
    data, parameters = graph()
    model, made = LightModel(data), examples()
    wanted = score(parameters, made)
    for row in range(len(made.queries)):
        scores, relevance = model.run(
            Candidates(made.features[row], made.queries[row], made.vectors[row])
        )
        assert scores == pytest.approx(wanted[row].tolist(), abs=1e-3)
        middle, width = CURVES[int(made.features[row, 0, -2])]
        curve = 1 / (1 + np.exp(-(np.array(scores) - middle) / width))
        assert relevance == pytest.approx(curve.tolist(), abs=1e-4)
    assert model.info.embedder == "embedder" and model.info.dimensions == DIMENSIONS
    assert len(model.info.mark) == 16


def test_equal_parameters_have_equal_files_and_other_parameters_another_mark() -> None:
    (one, parameters), (two, _) = graph(), graph()
    assert one == two
    parameters["linear"][0] += 1
    other = light_graph(parameters, LightDescription("embedder", FEATURES_VERSION, CURVES, ""))
    assert LightModel(other).info.mark != LightModel(one).info.mark


def test_what_is_no_light_reranker_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`forebay distill --write`"):
        LightModel.read(tmp_path / "absent.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"broken\.onnx cannot be loaded"):
        LightModel.read(tmp_path / "broken.onnx")
    data, _ = graph(version=FEATURES_VERSION + 1)
    with pytest.raises(ConfigError, match="another release"):
        LightModel(data)


def test_vectors_of_another_size_are_an_error() -> None:
    model = LightModel(graph()[0])
    hits = [hit("one"), hit("two")]
    with pytest.raises(EngineError):
        model.relevances("q", hits, HitVectors(b"\0" * 16, b"\0" * 32, 4))
    assert len(model.relevances("q", hits, vectors(2, DIMENSIONS))[0]) == 2


def test_a_model_that_knows_no_sentences_is_not_told_of_them() -> None:
    hits = [hit("one"), hit("two")]
    found = vectors(2, DIMENSIONS)
    near = msgspec.structs.replace(found, nearest=[0.9, 0.1])
    alone, both = (LightModel(graph(curves=count)[0]) for count in (1, 2))
    assert alone.relevances("q", hits, near) == alone.relevances("q", hits, found)
    assert both.relevances("q", hits, near) != both.relevances("q", hits, found)


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        (
            "How long may parcels be returned?",
            "Parcels may be returned within thirty days of delivery.",
            "The boiler is serviced once a year by a technician.",
        ),
        (
            "商品签收后几天内可以退货？",
            "商品签收后七天内可以申请退货。",
            "会议室需要提前一天预订。",
        ),
    ],
)
def test_the_shipped_model_prefers_what_answers(query: str, right: str, wrong: str) -> None:
    model = LightModel.shipped()
    language = "en" if query.isascii() else "zh"
    hits = [hit(wrong, 0.4, language=language), hit(right, 0.4, language=language)]
    scores, relevance = model.relevances(query, hits, vectors(2, model.info.dimensions))
    assert scores[1] > scores[0]
    assert 0.0 <= relevance[0] < relevance[1] <= 1.0


def test_the_shipped_model_follows_the_nearest_sentence() -> None:
    model = LightModel.shipped()
    hits = [hit("One thing.", 0.4), hit("Another thing.", 0.4)]
    near = msgspec.structs.replace(vectors(2, model.info.dimensions), nearest=[0.4, 0.7])
    scores, relevance = model.relevances("What may be returned?", hits, near)
    assert model.info.reads_sentences
    assert scores[1] > scores[0] and relevance[1] > relevance[0]
