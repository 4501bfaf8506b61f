"""Every embedder keeps the same promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.embedding.centering import CenteredEmbedder
from forebay.embedding.local import LocalEmbedder
from forebay.embedding.openai import OpenAIEmbedder
from forebay.embedding.opening import open_embedder
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.stages import Embedder
from forebay.testing.embedder_suite import TEXTS, EmbedderConformance, cosine, rows
from forebay.testing.embedding import HashEmbedder
from forebay.testing.embedding_server import EmbeddingServer
from forebay.testing.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build for all test processes."""
    return tmp_path_factory.getbasetemp().parent / "forebay-e5"


async def opened(
    settings: EmbeddingSettings, cache: Path
) -> LocalEmbedder | CenteredEmbedder | OpenAIEmbedder:
    embedder = await open_embedder(settings, cache=cache, clock=SystemClock())
    assert embedder is not None
    return embedder


class TestHash(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashEmbedder()


class TestDefault(EmbedderConformance):
    @pytest.fixture
    async def embedder(self, cache: Path) -> AsyncIterator[Embedder]:
        embedder = await opened(EmbeddingSettings(), cache)
        yield embedder
        await embedder.close()

    async def test_meaning_crosses_languages(self, embedder: Embedder) -> None:
        query = rows(await embedder.embed(["How long do I have to return goods?"], kind="query"))[0]
        right, wrong = rows(
            await embedder.embed(
                ["商品签收后七天内可以申请退货。", "会议室的投影仪在二楼。"], kind="passage"
            )
        )
        assert cosine(query, right) > cosine(query, wrong) + 0.03


class TestDefaultPlain(EmbedderConformance):
    """The model's own vectors, no language mean taken off."""

    @pytest.fixture
    async def embedder(self, cache: Path) -> AsyncIterator[Embedder]:
        embedder = await opened(EmbeddingSettings(center_languages=False), cache)
        yield embedder
        await embedder.close()

    async def test_kinds_have_their_own_prefix(self, embedder: Embedder) -> None:
        kinds = [rows(await embedder.embed(TEXTS[:1], kind=k))[0] for k in ("query", "passage")]
        raw = rows(await embedder.embed([f"query: {TEXTS[0]}"], kind="raw"))[0]
        assert cosine(kinds[0], kinds[1]) < 0.999
        assert cosine(kinds[0], raw) > 0.9999


class TestFolder(EmbedderConformance):
    @pytest.fixture
    async def embedder(self, tmp_path: Path) -> AsyncIterator[Embedder]:
        write_tiny_model(tmp_path / "tiny")
        settings = EmbeddingSettings(backend="onnx", path=str(tmp_path / "tiny"), batch_size=4)
        embedder = await opened(settings, tmp_path)
        yield embedder
        await embedder.close()


class TestOpenAI(EmbedderConformance):
    @pytest.fixture
    async def embedder(self, tmp_path: Path) -> AsyncIterator[Embedder]:
        async with EmbeddingServer() as server:
            settings = EmbeddingSettings(
                backend="openai", base_url=server.base_url, model="hash", batch_size=4
            )
            embedder = await opened(settings, tmp_path)
            yield embedder
            await embedder.close()
