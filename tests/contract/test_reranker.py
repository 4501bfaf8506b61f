"""Every reranker keeps the same promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forebay.kernel.stages import Reranker
from forebay.rerank import SimilarityReranker, SimilaritySettings
from forebay.rerank.cross_encoder import CrossEncoder, CrossEncoderReranker
from forebay.rerank.endpoint import EndpointReranker
from forebay.rerank.late import LateReranker, LateSettings
from forebay.rerank.late_head import LateHead
from forebay.rerank.sentences import SentenceReranker, SentenceSettings
from forebay.rerank.settings import CrossEncoderSettings, EndpointSettings
from forebay.testing.embedding import HashEmbedder, HashTokenEncoder
from forebay.testing.rerank_server import RerankServer
from forebay.testing.reranker_suite import RerankerConformance
from forebay.testing.reranking import OverlapReranker
from forebay.testing.tiny_cross_encoder import write_tiny_cross_encoder
from tests.unit.rerank.heads import write_small_head


class TestOverlap(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return OverlapReranker()


class TestSimilarity(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return SimilarityReranker(HashEmbedder(), SimilaritySettings(middle=0.3, width=0.1))


class TestSentences(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return SentenceReranker(HashEmbedder(), SentenceSettings(middle=0.3, width=0.1))


class TestLate(RerankerConformance):
    @pytest.fixture
    def reranker(self, tmp_path: Path) -> Iterator[Reranker]:
        encoder = HashTokenEncoder()
        head = LateHead(write_small_head(tmp_path, encoder.spec))
        with ThreadPoolExecutor(1) as executor:
            yield LateReranker(encoder, head, LateSettings(), executor)


class TestEndpoint(RerankerConformance):
    @pytest.fixture
    async def reranker(self) -> AsyncIterator[Reranker]:
        async with RerankServer() as server:
            reranker = EndpointReranker(EndpointSettings(base_url=server.base_url, model="m"))
            yield reranker
            await reranker.close()


class TestEndpointWithLogits(RerankerConformance):
    @pytest.fixture
    async def reranker(self) -> AsyncIterator[Reranker]:
        async with RerankServer() as server:
            server.logits = True
            settings = EndpointSettings(base_url=server.base_url, logits=True)
            reranker = EndpointReranker(settings)
            yield reranker
            await reranker.close()


class TestCrossEncoder(RerankerConformance):
    @pytest.fixture(params=[1, 2], ids=["logit", "classes"])
    async def reranker(
        self, tmp_path: Path, request: pytest.FixtureRequest
    ) -> AsyncIterator[Reranker]:
        folder = write_tiny_cross_encoder(tmp_path / "tiny", outputs=request.param)
        settings = CrossEncoderSettings(path=str(folder), batch_size=2)
        reranker = CrossEncoderReranker(CrossEncoder(settings), settings)
        yield reranker
        await reranker.close()
