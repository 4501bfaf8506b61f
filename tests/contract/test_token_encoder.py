"""Every source of token states keeps the same promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from forebay.embedding.opening import open_embedder, token_encoder
from forebay.embedding.settings import EmbeddingSettings
from forebay.kernel.clock import SystemClock
from forebay.kernel.stages import Embedder
from forebay.kernel.tokens import TokenEncoder
from forebay.testing.embedder_suite import TEXTS
from forebay.testing.embedding import HashEmbedder, HashTokenEncoder
from forebay.testing.tiny_model import write_tiny_model
from forebay.testing.token_suite import TokenEncoderConformance


class TestHash(TokenEncoderConformance):
    @pytest.fixture
    def encoder(self) -> TokenEncoder:
        return HashTokenEncoder()


class TestDefault(TokenEncoderConformance):
    @pytest.fixture
    async def embedder(self, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Embedder]:
        cache = tmp_path_factory.getbasetemp().parent / "forebay-e5"
        embedder = await open_embedder(
            EmbeddingSettings(center_languages=False), cache=cache, clock=SystemClock()
        )
        assert embedder is not None
        yield embedder
        await embedder.close()

    @pytest.fixture
    def encoder(self, embedder: Embedder) -> TokenEncoder:
        encoder = token_encoder(embedder)
        assert encoder is not None
        return encoder

    async def test_their_mean_is_the_texts_vector(
        self, embedder: Embedder, encoder: TokenEncoder
    ) -> None:
        vectors = await embedder.embed(TEXTS, kind="passage")
        expected = np.frombuffer(vectors.data, "<f4").reshape(len(TEXTS), -1)
        for row, states in zip(expected, await encoder.states(TEXTS, kind="passage"), strict=True):
            mean = np.frombuffer(states.data, "<f4").reshape(states.tokens, -1).mean(axis=0)
            assert mean @ row / np.linalg.norm(mean) == pytest.approx(1, abs=1e-5)


class TestFolder(TokenEncoderConformance):
    @pytest.fixture
    async def encoder(self, tmp_path: Path) -> AsyncIterator[TokenEncoder]:
        write_tiny_model(tmp_path / "tiny")
        settings = EmbeddingSettings(backend="onnx", path=str(tmp_path / "tiny"), batch_size=4)
        embedder = await open_embedder(settings, cache=tmp_path, clock=SystemClock())
        encoder = token_encoder(embedder)
        assert embedder is not None and encoder is not None
        yield encoder
        await embedder.close()


def test_only_a_model_in_this_process_has_them() -> None:
    assert token_encoder(None) is None
    assert token_encoder(HashEmbedder()) is None
