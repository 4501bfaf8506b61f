"""Which rerankers a process opens, and what it refuses to start with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from forebay.app.nearest import NearestScorer
from forebay.app.reranking import Reranking, open_reranking, sentences_of
from forebay.app.runtime import Reading
from forebay.app.settings import RerankSettings, Settings
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import EmbedderSpec
from forebay.rerank.cross_encoder import CrossEncoderReranker
from forebay.rerank.endpoint import EndpointReranker
from forebay.rerank.light import LightModel
from forebay.rerank.sentences import SentenceReranker, SentenceSettings
from forebay.rerank.settings import (
    CrossEncoderSettings,
    DearSettings,
    EndpointSettings,
    LightSettings,
)
from forebay.testing.embedding import HashEmbedder
from forebay.testing.tiny_cross_encoder import write_tiny_cross_encoder


class Shipped(HashEmbedder):
    """An embedder that says it is the one the shipped model was trained on."""

    @property
    def spec(self) -> EmbedderSpec:
        return msgspec.structs.replace(super().spec, fingerprint=LightModel.shipped().info.embedder)


def reading(embedder: Any, **changes: Any) -> Reading:
    rerank = msgspec.structs.replace(RerankSettings(), **changes)
    settings = msgspec.structs.replace(Settings(), rerank=rerank)
    threads = SimpleNamespace(executor=ThreadPoolExecutor(1))
    record = SimpleNamespace(sentences=lambda kb, maker, chunk_ids: {})
    parts = SimpleNamespace(settings=settings, embedder=embedder, threads=threads, reader=record)
    return cast("Reading", parts)


async def opened(embedder: Any, **changes: Any) -> Reranking:
    async with open_reranking(reading(embedder, **changes)) as reranking:
        return reranking


async def test_off_is_the_default_and_auto_knows_its_embedder() -> None:
    assert (await opened(Shipped())).parts is None
    for embedder in (None, HashEmbedder()):
        assert await opened(embedder, backend="auto") == Reranking()
    found = await opened(Shipped(), backend="auto")
    assert found.parts is not None and found.parts.dear is None
    assert isinstance(found.parts.light, NearestScorer), "it hears of sentences, which are kept"
    assert LightModel.shipped().info.mark in found.mark


async def test_what_keeps_failing_is_told_in_figures_and_sentences() -> None:
    assert Reranking().statistics() == {} and Reranking().shortcomings() == ()
    found = await opened(Shipped(), backend="light")
    assert found.parts is not None and not found.shortcomings()
    for _ in range(3):
        found.parts.tally.failed("light", "timeout")
    assert found.statistics()["light_failing"] == 1
    assert "the light reranker failed" in found.shortcomings()[0]


def test_the_curve_of_sentences_is_a_setting_and_follows_the_embedder() -> None:
    def told(embedding: EmbeddingSettings, **changes: float) -> tuple[float, float]:
        dear = DearSettings(sentences=SentenceSettings(**changes))  # type: ignore[arg-type]
        rerank = RerankSettings(dear=dear)
        made = sentences_of(Settings(rerank=rerank, embedding=embedding))
        return made.middle, made.width

    usual, uncentered = EmbeddingSettings(), EmbeddingSettings(center_languages=False)
    assert told(usual) == (0.63, 0.076)
    assert told(uncentered) == (0.86, 0.02)
    assert told(usual, middle=0.4) == (0.4, 0.076)
    assert told(uncentered, middle=0.9, width=0.03) == (0.9, 0.03)


@pytest.mark.parametrize(
    ("embedder", "changes", "told"),
    [
        (None, {"backend": "light"}, "embedding.backend is none"),
        (HashEmbedder(), {"backend": "light"}, "another embedder"),
        (Shipped(), {"backend": "light", "light": LightSettings("absent.onnx")}, "absent.onnx"),
        (
            Shipped(),
            {"backend": "cascade", "dear": DearSettings(backend="endpoint")},
            "base_url is needed",
        ),
        (
            Shipped(),
            {"backend": "cascade", "dear": DearSettings(backend="onnx")},
            "tokenizer.json",
        ),
        (
            Shipped(),
            {"backend": "cascade", "dear": DearSettings(backend="late")},
            "single tokens",
        ),
    ],
)
async def test_what_cannot_be_is_told_at_the_start(
    embedder: Any, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        await opened(embedder, **changes)


async def test_each_dear_reranker_is_opened_and_in_the_keys(tmp_path: Path) -> None:
    folder = write_tiny_cross_encoder(tmp_path / "tiny")
    kinds = {
        SentenceReranker: DearSettings(),
        EndpointReranker: DearSettings("endpoint", EndpointSettings("http://127.0.0.1:9/v1")),
        CrossEncoderReranker: DearSettings("onnx", onnx=CrossEncoderSettings(str(folder))),
    }
    marks = set()
    for kind, dear in kinds.items():
        found = await opened(Shipped(), backend="cascade", dear=dear)
        assert found.parts is not None and isinstance(found.parts.dear, kind)
        marks.add(found.mark)
    assert len(marks) == 3
