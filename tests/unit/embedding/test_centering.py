"""Language means: off for queries and passages, not for raw vectors; part of the identity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forebay.embedding.centering import CenteredEmbedder, Kind, LanguageMeans, centred, han_share
from forebay.kernel.documents import Vectors
from forebay.testing.embedding import HashEmbedder


class Inner(HashEmbedder):
    """A closable hash embedder."""

    async def close(self) -> None:
        """Nothing to free."""


def means(scale: float = 0.1) -> LanguageMeans:
    values = np.full((2, 64), scale, dtype="<f4")
    values[1] *= -1
    return LanguageMeans(values, values)


def matrix(vectors: Vectors) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.frombuffer(vectors.data, "<f4").reshape(-1, vectors.dimensions)


@pytest.mark.parametrize(
    ("text", "share"),
    [("年假有几天", 1.0), ("How many days", 0.0), ("VPN 连接", 2 / 3), ("123", 0.5), ("", 0.5)],
)
def test_how_chinese_a_text_is(text: str, share: float) -> None:
    assert han_share(text) == pytest.approx(share, abs=1e-6)


async def test_vectors_have_unit_length_and_move_by_language() -> None:
    plain, centered = Inner(), CenteredEmbedder(Inner(), means())
    texts = ["年假有几天", "How many days"]
    before = matrix(await plain.embed(texts, kind="passage"))
    after = matrix(await centered.embed(texts, kind="passage"))
    assert np.linalg.norm(after, axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)
    assert after[0].sum() < before[0].sum()
    assert after[1].sum() > before[1].sum()


async def test_raw_vectors_are_the_models_own() -> None:
    texts: Sequence[str] = ["年假", "leave"]
    raw: Kind = "raw"
    plain = await Inner().embed(texts, kind=raw)
    assert await CenteredEmbedder(Inner(), means()).embed(texts, kind=raw) == plain


async def test_no_texts() -> None:
    assert (await CenteredEmbedder(Inner(), means()).embed([], kind="query")).ids == ()


def test_the_identity_differs_from_the_models_and_between_means() -> None:
    plain = Inner().spec
    first = CenteredEmbedder(Inner(), means()).spec
    second = CenteredEmbedder(Inner(), means(0.2)).spec
    assert len({plain.fingerprint, first.fingerprint, second.fingerprint}) == 3
    assert (first.dimensions, first.max_tokens) == (plain.dimensions, plain.max_tokens)


def test_a_vector_equal_to_its_mean_stays_finite() -> None:
    rows = np.ones((1, 4), dtype="<f4")
    assert np.isfinite(centred(rows, (rows / np.float32(0.9)).astype(np.float32))).all()


def test_the_shipped_means_tell_the_languages_apart() -> None:
    shipped = LanguageMeans.shipped()
    zh, en = shipped.passage
    assert shipped.passage.shape == shipped.query.shape == (2, 384)
    assert zh @ en / np.linalg.norm(zh) / np.linalg.norm(en) < 0.97
